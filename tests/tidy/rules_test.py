#!/usr/bin/env python3
"""Shows for each rule a file that it refuses and one that it lets pass."""

import pathlib
import tempfile
import unittest

from rules import RULES
from source import Source, read_tree

LONG_BODY = "  work();\n" * 80
KEYS = ("core/src/config_keys.cpp", '.name = "cache.policy" .name = "kv.block_tokens"\n')
COMMANDS = ("apps/a.cpp", 'p.add_subcommand("run", "x"); add_subcommand("trace"); add("info");\n')
SAYS = ("core/src/a.cpp", 'fail("{} is full: "\n     "raise it")\n')
CORE_LISTED = ("core/CMakeLists.txt", "SOURCES\n  src/a.cpp)\n")

# rule: (files refused, files passed); each file is (path, text)
CASES = {
    "columns": [
        ([("core/src/a.cpp", "x" * 101)], [("core/src/a.cpp", "x" * 100)]),
        ([("core/CMakeLists.txt", "é" * 101)], [("README.md", "x" * 300)]),
    ],
    "cuda_headers": [
        (
            [("offload/src/a.cpp", "#include <cuda_runtime.h>\n")],
            [("offload/src/cuda/a.cpp", "#include <cuda_runtime.h>\n")],
        ),
        ([("core/include/a.hpp", "#  include <cub/cub.cuh>\n")], [("core/src/a.cpp", "// cub/\n")]),
    ],
    "runtime_folders": [
        (
            [("runtime/src/rows/a.cpp", '#include "layer/layer.hpp"\n')],
            [("runtime/src/layer/a.cpp", '#include "rows/layer_rows.hpp"\n')],
        ),
        (
            [("runtime/src/index/a.hpp", '#include "cache/unit_cache.hpp"\n')],
            [("runtime/src/index/a.hpp", '#include "index/index_room.hpp"\n#include "b.hpp"\n')],
        ),
    ],
    "device_bits": [
        (
            [("kernels/src/cuda/a.cu", "unsigned a = std::bit_floor(b);\n")],
            [("kernels/src/cuda/a.cu", "constexpr unsigned a = std::bit_floor(capacity);\n")],
        ),
        (
            [("core/include/terrace/core/a.hpp", "return std::has_single_bit(a);\n")],
            [("core/src/a.cpp", "return std::has_single_bit(a);\n")],
        ),
    ],
    "library_calls": [
        ([("core/src/a.cpp", 'std::printf("x");\n')], [("apps/a.cpp", 'std::printf("x");\n')]),
        ([("core/src/a.cpp", "std::exit(1);\n")], [("core/src/a.cpp", "// never exit(1)\n")]),
        ([("core/src/a.cpp", "std::abort();\n")], [("core/src/a.cpp", '"abort()";\n')]),
        ([("core/src/a.cpp", "std::random_device d;\n")], [("core/src/a.cpp", "Rng rng(1);\n")]),
        (
            [("offload/src/a.cpp", "sleep_for(1ms);  // tidy-allow(library_calls):\n")],
            [("offload/src/a.cpp", "// tidy-allow(library_calls): a link\nsleep_for(1ms);\n")],
        ),
        ([("core/src/a.cpp", "::sleep(1);\n")], [("core/src/a.cpp", "clock.sleep(1);\n")]),
        ([("bindings/c/src/a.cpp", "exit(1);\n")], [("examples/a/main.c", "exit(1);\n")]),
        ([("core/src/a.cpp", "fmt::print(x);\n")], [("core/src/a.cpp", "n = 1'000;\nprint(n);")]),
    ],
    "printing": [
        (
            [("apps/terrace/a.cpp", 'fmt::print("x");\n')],
            [("apps/terrace/a.cpp", 'print_out("x");\n'), ("bench/a.cpp", 'fmt::print("x");\n')],
        ),
        (
            [("apps/terrace/a.cpp", 'std::cerr << "x";\n')],
            [("apps/terrace/output.cpp", "std::fwrite(a, 1, n, stderr); // std::cerr\n")],
        ),
    ],
    "length": [
        ([("core/src/a.cpp", "\n" * 601)], [("core/src/a.cpp", "\n" * 600)]),
        ([("core/a.hpp", "int a;\n" * 201)], [("core/a.hpp", "int a;\n// why\n" * 200)]),
        (
            [("core/src/a.cpp", "int f() {\n" + LONG_BODY + "}\n")],
            [("core/src/a.cpp", "namespace a {\n" + "int f() {\n}\n" * 40 + "}\n")],
        ),
        (
            [("core/src/a.cpp", "class A {\n int f() const {\n" + LONG_BODY + "}\n};\n")],
            [("core/src/a.cpp", "constexpr int a[] = {\n" + "  1,\n" * 80 + "};\n")],
        ),
        (
            [("core/src/a.cpp", "A::A() : x_{1}, y_{2} {\n" + LONG_BODY + "}\n")],
            [("core/src/a.cpp", "A::A() : x_{1}, y_{2} {}\n")],
        ),
        (
            [("core/src/a.cpp", "#define M(x)\nint f(int a = g()) {\n" + LONG_BODY + "}\n")],
            [("core/src/a.cpp", "// tidy-allow(length): a table\nint f() {\n" + LONG_BODY + "}\n")],
        ),
    ],
    "todo": [([("core/src/a.cpp", "// TODO: later\n")], [("core/src/a.cpp", "// TODO(#12): x\n")])],
    "drawers": [
        ([("core/src/utils.cpp", "")], [("core/src/utilization.cpp", "")]),
        ([("core/common/a.cpp", "")], [("core/src/a.cpp", "")]),
    ],
    "foreign_paths": [
        ([("HACKING.md", "see /work/x\n")], [("HACKING.md", "see work/x and a/work/y\n")]),
        ([("tools/a.py", '"/home/me/x"\n')], [("tools/a.py", '"/usr/share/x"\n')]),
        ([("tools/a.sh", "cd /root/x\n")], [("tools/a.sh", "cd ${HOME}/work/x\n")]),
    ],
    "words": [
        (
            [("core/src/a.cpp", "// Of a block all rows are copied.\n")],
            [("core/src/a.cpp", "// All rows of a block are copied.\n")],
        ),
        (
            [("core/a.hpp", "/// Copies rows.\n/// Whoever asks waits.\nint a;\n")],
            [("core/a.hpp", 'auto a = "Who? Of which";  // says What it needs\n')],
        ),
        (
            [("core/src/a.cpp", "int a;  // rows, of\n        // which two stay\n")],
            [("core/src/a.cpp", "// A row of a block\n")],
        ),
        ([("core/a.h", "/* Order    Behind a step */\n")], [("core/a.h", "/* Order  Last */\n")]),
        (
            [("tools/a.py", '"""Checks.\n\nWhat is left is read."""\n')],
            [("tools/a.py", 'a = "What is left"  # by name\nb = 1  # it comes to be\n')],
        ),
        (
            [("tools/a.py", "# Queues are those that come to\n# rest.\n")],
            [("tools/a.py", "# tidy-allow(words): a title\n# Who?\n")],
        ),
        ([("docs/a.md", "Rows, of\nwhich\n")], [("docs/decisions/1-a.md", "What stays\n")]),
        ([("docs/a.md", "a\n- Whose turn it is.\n")], [("docs/a.md", "- Turns: Who\n")]),
        (
            [("docs/a.md", "| a | b |\n| x | What stays is read |\n")],
            [("docs/a.md", '## What it is\n`of which`, "Who": a\n'), ("a.md", "Who asks\n")],
        ),
    ],
    "unbuilt": [
        ([CORE_LISTED, ("core/src/b.cpp", "")], [CORE_LISTED, ("core/src/a.cpp", "")]),
        ([CORE_LISTED, ("core/src/x/a.cpp", "")], [CORE_LISTED, ("tools/b.cpp", "")]),
        ([CORE_LISTED, ("bindings/c/src/b.cpp", "")], [("tools/b.c", "")]),
        ([("examples/a/main.c", "")], [("examples/a/CMakeLists.txt", "(a main.c)\n")]),
    ],
    "guides": [
        (
            [("docs/a.md", "[b](b.md)\n"), ("b.md", "")],
            [("docs/a.md", "[b](b.md#c), `[x](y)`, [w](https://x.org)\n"), ("docs/b.md", "# C\n")],
        ),
        (
            [("docs/a.md", "[b](#d)\n# C\n"), ("docs/b.md", "# D\n")],
            [("docs/a.md", "[b](#c-d_e)\n# C: d_e\n")],
        ),
        (
            [COMMANDS, ("README.md", "`terrace walk`\n")],
            [COMMANDS, ("README.md", "`terrace run`, `apt-get remove terrace walk`\n")],
        ),
        (
            [COMMANDS, ("README.md", "`A=b bin/terrace trace walk`\n")],
            [COMMANDS, ("README.md", "    terrace trace info FILE\n")],
        ),
        (
            [("README.md", "```c\na();\nc();\n```\n"), ("examples/a.c", "a();\nb();\n")],
            [("README.md", "```c\na();  /* x */\n```\n"), ("examples/a.c", "  a();\nb();\n")],
        ),
        (
            [SAYS, ("docs/troubleshooting.md", '| "... is full: lower it" | x |\n')],
            [SAYS, ("docs/troubleshooting.md", '| "... is full: raise it" | "x" |\n')],
        ),
        (
            [("docs/decisions/0001-a.md", ""), ("docs/decisions/README.md", "0001-a.md\n")],
            [("docs/decisions/0001-a.md", ""), ("docs/decisions/README.md", "[a](0001-a.md)\n")],
        ),
    ],
    "docs": [
        (
            [("docs/a.md", "Call `terrace::Nothing`.\n")],
            [("docs/a.md", "Call `terrace::Config`.\n"), ("core/a.hpp", "class Config;\n")],
        ),
        (
            [("README.md", "See `core/src/b.cpp`.\n"), ("core/src/a.cpp", "")],
            [("README.md", "See `core/src/` and `build/x`.\n"), ("core/src/a.cpp", "")],
        ),
        (
            [("HACKING.md", "Start from `pieces.hpp`.\n"), ("core/src/a.cpp", "// pieces.hpp\n")],
            [("HACKING.md", "Start from `src/a.cpp`, `a.txt`.\n"), ("core/src/a.cpp", "")],
        ),
        (
            [KEYS, ("docs/a.md", "Key `cache.block_tokens`.\n")],
            [KEYS, ("docs/a.md", "Key `kv.block_tokens: 32`, `kv.yaml`, `model.size`.\n")],
        ),
        (
            [KEYS, ("docs/a.md", "Set `TERRACE_KV_BLOCKS`.\n")],
            [KEYS, ("docs/a.md", "Set `TERRACE_KV_BLOCK_TOKENS`, `OMP_NUM_THREADS`.\n")],
        ),
        (
            [("README.md", "    terrace run --fast\n"), ("apps/a.cpp", '"--faster"')],
            [("README.md", "```\ncc --fast\n```\n`--faster`\n"), ("apps/a.cpp", '"--faster"')],
        ),
        (
            [("HACKING.md", "An `IndexPart`.\n"), ("core/a.hpp", "Index")],
            [("HACKING.md", "`IndexPart::size`, `Part`.\n"), ("core/a.hpp", "IndexPart size")],
        ),
        ([("docs/a.md", "`Index::cut`\n"), ("core/a.hpp", "Index")], [("docs/a.md", "`cut`\n")]),
        (
            [("docs/a.md", "`serving_time_b64_signs`\n"), ("bench/a.cpp", '"serving_step_b{}"')],
            [("docs/a.md", "`serving_step_b64`, `step_b`\n"), ("bench/a.cpp", '"serving_step_b"')],
        ),
        (
            [("docs/a.md", "`OldName`\n")],
            [("docs/decisions/0001-a.md", "`OldName`\n"), ("docs/a-archive.md", "`OldName`\n")],
        ),
        ([("docs/a.md", "`OldName`\n")], [("CHANGELOG.md", "`OldName`\n")]),
    ],
}


class Tree(unittest.TestCase):
    def test_has_what_is_the_projects_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("README.md", ".git", "build/a.txt", ".github/b.txt", "core/c.txt"):
                path = pathlib.Path(folder, name)
                path.parent.mkdir(exist_ok=True)
                path.write_text("x")
            found = [source.path.as_posix() for source in read_tree(folder)]
        self.assertEqual(found, ["README.md", "core/c.txt"])


class Rules(unittest.TestCase):
    def findings(self, rule, files):
        return list(RULES[rule]([Source(path, text) for path, text in files]))

    def test_every_rule_has_cases(self):
        self.assertEqual(set(CASES), set(RULES))

    def test_rules_refuse_and_pass(self):
        for rule, cases in CASES.items():
            for refused, passed in cases:
                with self.subTest(rule=rule, refused=refused):
                    self.assertTrue(self.findings(rule, refused))
                with self.subTest(rule=rule, passed=passed):
                    self.assertEqual(self.findings(rule, passed), [])


if __name__ == "__main__":
    unittest.main()
