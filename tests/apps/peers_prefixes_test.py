"""bench/peers/prefixes.py with a made-up peer: nothing is installed."""

import contextlib
import io
import json
import pathlib
import sys
from unittest import mock

from program import PROGRAM, InAFolder

PEERS = pathlib.Path(__file__).parents[2] / "bench" / "peers"
sys.path.insert(0, str(PEERS))
import prefixes  # noqa: E402


def request(time, tokens, ids):
    return json.dumps({"timestamp": time, "input_length": tokens, "hash_ids": ids})


class PrefixPeers(InAFolder):
    def setUp(self):
        super().setUp()
        # A dialogue of 16 blocks, three times, and prompts of others; a GiB has 16 blocks.
        document = list(range(16))
        others = [list(range(100 * i, 100 * i + 4)) for i in range(1, 4)]
        prompts = [document, others[0], document, others[1], document, others[2]]
        self.requests = self.write("m.jsonl", "\n".join(
            request(i, 512 * len(ids) + 9, [*ids, 9000 + i]) for i, ids in enumerate(prompts)))

    def ask(self, points, lacks=""):
        """Returns exit status and rows; `points` are the peer's tokens by size."""
        arguments = ["prefixes.py", str(self.requests), "--sizes", "1,2", "--format", "json",
                     "--program", PROGRAM]
        environment = prefixes.environments.Environment(pathlib.Path("/nowhere"), lacks)
        answer = {size: {"hitTokens": tokens, "totalTokens": 512 * 24}
                  for size, tokens in points.items()}
        with mock.patch.object(sys, "argv", arguments), \
                mock.patch.object(prefixes.environments, "make", return_value=environment), \
                mock.patch.object(prefixes, "peer_points", return_value=answer), \
                contextlib.redirect_stdout(io.StringIO()) as printed:
            status = prefixes.main()
        return status, json.loads(printed.getvalue())

    def test_the_second_half_is_counted_in_whole_blocks(self):
        # With room for 16 blocks four of the document went for the prompt before.
        status, rows = self.ask({1: 512 * 12, 2: 512 * 16})
        self.assertEqual([row["terrace_tokens"] for row in rows], [512 * 12, 512 * 16])
        self.assertEqual(status, 0)

    def test_other_tokens_are_a_failure(self):
        status, _ = self.ask({1: 512 * 12, 2: 512 * 15})
        self.assertEqual(status, 1)

    def test_a_peer_that_is_missing_has_a_reason(self):
        status, rows = self.ask({}, lacks="no kvcache_sim")
        self.assertEqual(status, 0)
        self.assertEqual({row["reason"] for row in rows}, {"no kvcache_sim"})
        self.assertIn("no kvcache_sim", prefixes.table(rows))
        _, rows = self.ask({1: 512 * 12})
        self.assertIn("do not fill", rows[1]["reason"])
