"""The repository's own pages, copied for the site in the folders that they have.

Links from page to page stay as they are. A link to another file of the repository becomes the
file's name as code: the site has pages alone.
"""

import posixpath
import re

# Code, where nothing is a link, or a link of one page to another or to a file.
_LINK = re.compile(r"^```.*?^```|`[^`]*`|\[(?P<text>[^\[\]]*)\]\((?P<target>[^()\s]+)\)",
                   re.M | re.S)


def find_pages(root):
    """Returns the paths below `root` of all pages, as texts with slashes."""
    files = [*root.glob("*.md"), *root.glob("docs/**/*.md")]
    return sorted(path.relative_to(root).as_posix() for path in files)


def rewrite_links(text, page, pages):
    """Returns the text of `page` with links that lead to other `pages` or out of the repository."""
    def rewrite(match):
        target = match["target"] or "#"  # of code, which has none
        if target.startswith("#") or "://" in target:
            return match.group()
        name, _, _ = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), name))
        if path in pages:
            return match.group()
        said = match["text"].strip("`").replace("\n", " ")
        if path == said or path.endswith(f"/{said}"):
            return f"`{path}`"
        return f"{match['text']} (`{path}`)"

    return _LINK.sub(rewrite, text)


def copy_pages(root, out):
    pages = find_pages(root)
    for page in pages:
        text = (root / page).read_text(encoding="utf-8")
        (out / page).parent.mkdir(parents=True, exist_ok=True)
        (out / page).write_text(rewrite_links(text, page, set(pages)), encoding="utf-8")
