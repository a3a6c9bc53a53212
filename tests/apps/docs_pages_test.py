"""Pages of the documentation site, as tools/docs makes them. Each class is a test."""

import os
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools" / "docs"))
import help_text  # noqa: E402: found by the path above
from pages import find_pages, rewrite_links  # noqa: E402
from reference_pages import command_page, keys_page  # noqa: E402

BUILD = pathlib.Path(os.environ["TERRACE_PROGRAM"]).parents[1]


class DocsPages(unittest.TestCase):
    PAGES = {"README.md", "docs/install.md", "docs/decisions/README.md"}

    def rewrite(self, text, page="docs/commands.md"):
        return rewrite_links(text, page, self.PAGES)

    def test_links_between_pages_stay(self):
        for link in ("[install](install.md)", "[front](../README.md#install)", "[here](#settings)",
                     "[why](decisions/README.md)", "[far](https://example.org/a.md)"):
            self.assertEqual(self.rewrite(link), link)

    def test_links_to_other_files_become_code(self):
        self.assertEqual(self.rewrite("see [examples/a.py](../examples/a.py)."),
                         "see `examples/a.py`.")
        self.assertEqual(self.rewrite("[a.py](../examples/a.py)"), "`examples/a.py`")
        self.assertEqual(self.rewrite("[how\nit works](../examples/a.py#L3)"),
                         "how\nit works (`examples/a.py`)")
        self.assertEqual(self.rewrite("[gone](gone.md)"), "gone (`docs/gone.md`)")

    def test_code_is_left_alone(self):
        for code in ("`[a](../b.py)`", "```cpp\ncall[i](../b.py)\n```"):
            self.assertEqual(self.rewrite(code), code)

    def test_each_page_of_the_repository_is_found(self):
        pages = find_pages(ROOT)
        for page in ("README.md", "HACKING.md", "docs/install.md", "docs/decisions/README.md"):
            self.assertIn(page, pages)
        self.assertFalse([page for page in pages if page.startswith("build/")])

    def test_each_key_has_a_row(self):
        keys = help_text.config_keys(BUILD / "bin" / "terrace")
        page = keys_page(keys)
        for key in keys:
            self.assertEqual(len(re.findall(rf"^\| `{re.escape(key.name)}` \| ", page, re.M)), 1,
                             key.name)

    def test_each_option_has_a_row_of_its_command(self):
        program = help_text.walk(BUILD / "bin" / "terrace", ("terrace",))
        parts = re.split(r"^#+ (terrace.*)$", command_page(program), flags=re.M)
        texts = dict(zip(parts[1::2], parts[2::2]))
        for command in program.all():
            rows = texts[" ".join(command.words)].splitlines()
            for option in command.options:
                named = [row for row in rows if f"`{option.names[-1]}`" in row.split(" | ")[0]]
                self.assertEqual(len(named), 1, (command.words, option.names))
                self.assertEqual(len(re.findall(r"(?<!\\)\|", named[0])), 3, named[0])


if __name__ == "__main__":
    unittest.main()
