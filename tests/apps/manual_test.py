"""Man pages and completion, as tools/docs makes them of the real programs. Each class is a test."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "docs"
BUILD = pathlib.Path(os.environ["TERRACE_PROGRAM"]).parents[1]
sys.path.insert(0, str(TOOL))
import help_text  # noqa: E402: found by the path above

# Prints what completion offers for the words after the script's name; the last one is being typed.
TRY = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
function=$(complete -p "$1"); function=${function#*-F }; ${function%% *}
printf '%s\\n' "${COMPREPLY[@]}"
"""


class Manual(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        subprocess.run([sys.executable, TOOL / "make_manual.py", "--build", BUILD, "--out",
                        cls.folder], check=True)

    def commands(self):
        for name, section in (("terrace", 1), ("terraced", 8)):
            for command in help_text.walk(BUILD / "bin" / name, (name,)).all():
                page = f"{'-'.join(command.words)}.{section}"
                yield command, self.folder / "man" / f"man{section}" / page


class ManPages(Manual):
    def test_each_option_of_help_is_in_the_page_of_its_command(self):
        count = 0
        for command, page in self.commands():
            text = page.read_text(encoding="utf-8").replace("\\-", "-")
            # In plain text: the tool's own reader of --help may have missed an option.
            said = help_text.ask(BUILD / "bin" / command.words[0], *command.words[1:], "--help")
            for line in said.splitlines():
                if line.startswith("  -"):
                    for name in line.split()[0].split(","):
                        self.assertIn(f"\\fB{name}\\fP", text, page.name)
                        count += 1
        self.assertGreater(count, 100)

    def test_each_word_of_help_is_in_the_page_of_its_command(self):
        for command, page in self.commands():
            text = page.read_text(encoding="utf-8").replace("\\-", "-").replace("\\e", "\\")
            for entry in (entry for section in command.notes for entry in section.entries):
                self.assertIn(entry.text, text, page.name)

    @unittest.skipUnless(shutil.which("groff"), "no groff")
    def test_roff_has_no_warnings(self):
        for _, page in self.commands():
            process = subprocess.run(["groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-z", page],
                                     capture_output=True, text=True, check=False)
            self.assertEqual((process.returncode, process.stderr), (0, ""), page.name)


class BashCompletion(Manual):
    def offered(self, *words):
        script = self.folder / "bash-completion" / "completions" / words[0]
        process = subprocess.run(["bash", "--norc", "-c", TRY, "try", script, *words], check=False,
                                 cwd=self.folder, capture_output=True, text=True)
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        return process.stdout.split()

    def test_commands_come_at_each_level(self):
        self.assertIn("doctor", self.offered("terrace", ""))
        self.assertEqual(self.offered("terrace", "config", ""), ["validate", "explain"])
        self.assertEqual(self.offered("terrace", "bench", "ke"), ["kernels"])

    def test_options_are_those_of_the_command(self):
        self.assertEqual(self.offered("terrace", "config", "validate", "--st"), ["--strict"])
        self.assertEqual(self.offered("terrace", "config", "explain", "--st"), [])
        self.assertEqual(self.offered("terraced", "--so"), ["--socket"])

    def test_the_value_of_an_option_is_no_command(self):
        self.assertEqual(self.offered("terrace", "run", "--save", "bench", "--turn"), ["--turns"])

    def test_an_option_gets_the_words_that_it_takes(self):
        self.assertEqual(self.offered("terrace", "run", "--format", ""), ["text", "json"])
        self.assertEqual(self.offered("terrace", "run", "--format", "=", "j"), ["json"])
        self.assertEqual(self.offered("terrace", "run", "--kv-dtype", "b"), ["bf16"])
        self.assertEqual(self.offered("terrace", "run", "--policy", "full,pq"), ["full,pqcache"])
        self.assertIn("h2o", self.offered("terrace", "run", "--policy", ""))
        self.assertEqual(self.offered("terrace", "run", "--context", ""), [])

    def test_set_gets_keys_and_their_words(self):
        self.assertEqual(self.offered("terrace", "run", "--set", "kv.d"), ["kv.dtype="])
        self.assertEqual(self.offered("terrace", "run", "--set", "kv.dtype", "=", ""),
                         ["f16", "bf16", "f32"])
        self.assertEqual(self.offered("terraced", "--set", "=", "daemon.lock_memory", "=", "of"),
                         ["off"])

    def test_files_and_folders_are_found(self):
        (self.folder / "text.txt").write_text("x")
        (self.folder / "texts").mkdir()
        self.assertEqual(self.offered("terrace", "run", "--text", "tex"), ["text.txt", "texts"])
        self.assertEqual(self.offered("terrace", "run", "--model", "tex"), ["texts"])
        self.assertEqual(self.offered("terrace", "trace", "info", "text."), ["text.txt"])


class ZshCompletion(Manual):
    def test_each_option_is_offered(self):
        for command, _ in self.commands():
            name = command.words[0]
            script = (self.folder / "zsh" / "site-functions" / f"_{name}").read_text()
            for option in command.options:
                self.assertRegex(script, rf"'[^'\[]*{option.names[-1]}=?\[", command.words)

    @unittest.skipUnless(shutil.which("zsh"), "no zsh")
    def test_zsh_reads_it(self):
        for script in (self.folder / "zsh" / "site-functions").iterdir():
            process = subprocess.run(["zsh", "-n", script], capture_output=True, check=False)
            self.assertEqual((process.returncode, process.stderr), (0, b""), script.name)


class HelpText(unittest.TestCase):
    TEXT = """does it

Usage: terrace it [OPTIONS] FILE

Positionals:
  FILE TEXT REQUIRED          the file

Options:
  -q,--quiet                  says less
  --form TEXT:{a,b} REQUIRED  a form
  --of-a-very-long-name FILE.html
                              below

Words (--form): of forms
  a                           the first
                              of them
Free text, which
goes on.
"""

    def test_help_is_read(self):
        command = help_text.parse(("terrace", "it"), self.TEXT)
        self.assertEqual(command.usage, "terrace it [OPTIONS] FILE")
        quiet, form, long = command.options
        self.assertEqual(quiet, (("-q", "--quiet"), "", False, "says less"))
        self.assertEqual(form, (("--form",), "a|b", True, "a form"))
        self.assertEqual(long, (("--of-a-very-long-name",), "FILE.html", False, "below"))
        self.assertEqual(command.positionals, [(("FILE",), "", True, "the file")])
        self.assertEqual(command.notes, [
            ("Words (--form)", [("", "of forms"), ("a", "the first of them")]),
            ("", [("", "Free text, which goes on.")])])


if __name__ == "__main__":
    unittest.main()
