"""The program terraced as a service manager runs it, and a client that knows the protocol alone."""

import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import unittest
import urllib.error
import urllib.request

from node_client import NEW_LEASE, PIN, NodeClient, Refused
from program import InAFolder, clean_environment, terrace

DAEMON = os.environ["TERRACED_PROGRAM"]


def key(number):
    return struct.pack("<2Q", number, 17)


class RunsDaemons(InAFolder):
    def setUp(self):
        super().setUp()
        self.socket = self.folder / "run" / "terraced.sock"
        self.write("terraced.yaml", f"""
tier.nvme.path: {self.folder}/chunks
tier.nvme.bytes: 16MiB
daemon: {{socket: {self.socket}, memory: 1MiB, quotas: {self.folder}/quotas}}
""")
        self.write("quotas", "")

    def command(self, *arguments):
        return [DAEMON, "--config", str(self.folder / "terraced.yaml"), *arguments]

    def run_to_end(self, *arguments):
        return subprocess.run(self.command(*arguments), env=clean_environment(), text=True,
                              capture_output=True, timeout=1800, check=False)

    def start(self, *arguments):
        """Returns a daemon that serves."""
        daemon = subprocess.Popen(self.command(*arguments), env=clean_environment(), text=True,
                                  stderr=subprocess.PIPE)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.stderr.close)
        self.addCleanup(daemon.kill)
        line = daemon.stderr.readline()
        self.assertIn("serving", line)
        return daemon

    def client(self, salt=b""):
        client = NodeClient(self.socket, salt)
        self.addCleanup(client.close)
        return client

    def lines_until(self, daemon, words):
        lines = []
        while not lines or words not in lines[-1]:
            lines.append(daemon.stderr.readline())
            self.assertNotEqual(lines[-1], "", lines)
        return lines


def answer_of(url):
    """Returns status and text of a page."""
    try:
        with urllib.request.urlopen(url, timeout=60) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def metrics_of_dashboard():
    file = pathlib.Path(__file__).parents[2] / "apps" / "terraced" / "dashboard.json"
    panels = json.loads(file.read_text(encoding="utf-8"))["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    return set(re.findall(r"terrace_\w+", " ".join(asked)))


class Terraced(RunsDaemons):
    def test_shows_metrics_and_health(self):
        daemon = self.start("--set", "daemon.metrics=127.0.0.1:0", "--set", "daemon.clients=2")
        url = daemon.stderr.readline().split()[-1]
        client = self.client()
        client.publish(key(0), b"rows" * 100)
        client.find(key(0))
        client.find(key(1))
        status, text = answer_of(url)
        self.assertEqual(status, 200)
        samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        self.assertEqual(samples['terrace_look_ups_total{outcome="hit_nvme"}'], "1")
        self.assertEqual(samples['terrace_look_ups_total{outcome="miss_never_stored"}'], "1")
        self.assertEqual(samples["terrace_chunks"], "1")
        self.assertEqual(samples["terrace_clients"], "2")
        # Each counter has a metric, but for the sum of look-ups.
        self.assertEqual(len(samples), len(client.counters()) - 1)
        self.assertIn("# TYPE terrace_look_ups_total counter", text.splitlines())
        self.assertEqual(metrics_of_dashboard() - {name.split("{")[0] for name in samples}, set())
        self.assertEqual(answer_of(url.replace("/metrics", "/health")), (200, "ok\n"))
        self.assertEqual(answer_of(url.replace("/metrics", "/other"))[0], 404)
        daemon.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.wait(), 0)

    def test_refuses_an_address_of_metrics_that_is_taken(self):
        daemon = self.start("--set", "daemon.metrics=127.0.0.1:0")
        address = daemon.stderr.readline().split()[-1].split("/")[2]
        ended = self.run_to_end("--socket", str(self.folder / "run" / "other.sock"),
                                "--set", f"tier.nvme.path={self.folder}/others",
                                "--set", f"daemon.metrics={address}")
        self.assertIn("cannot listen", ended.stderr)

    def test_refuses_an_address_of_metrics_that_is_none(self):
        for address, said in (("9464", "HOST:PORT"), ("127.0.0.1:x", "HOST:PORT"),
                              ("127.0.0.1:99999", "HOST:PORT"), ("192.0.2.1:80", "cannot listen")):
            ended = self.run_to_end("--set", f"daemon.metrics={address}")
            self.assertIn(said, ended.stderr)
            self.assertNotEqual(ended.returncode, 0)

    def test_serves_what_was_published_also_after_it_was_killed(self):
        daemon = self.start()
        client = self.client()
        rows = [os.urandom(3000), os.urandom(5000)]
        for number, content in enumerate(rows):
            self.assertEqual(client.publish(key(number), content), 0)
        self.assertEqual(client.publish(key(0), rows[0]), 1)
        for _ in range(2):
            client = self.client()
            outcome, lease, count = client.find(key(0), key(1), key(2))
            self.assertEqual((outcome, count), (3, 2))
            self.assertEqual([client.read(lease, number) for number in range(2)], rows)
            daemon.kill()
            daemon.wait()
            with self.assertRaises(ConnectionError):
                client.counters()
            daemon = self.start()
        self.assertEqual(self.client(b"other").find(key(0))[2], 0)

    def test_clients_that_go_leave_nothing(self):
        self.start()
        watcher, client = self.client(), self.client()
        client.publish(key(1), b"rows", NEW_LEASE)
        with self.assertRaises(Refused):
            client.call(PIN, key(2))
        self.assertEqual(watcher.counters()["leases"], 1)
        client.close()
        while watcher.counters()["clients"] > 1:
            pass
        self.assertEqual(watcher.counters()["leases"], 0)

    def test_ends_at_sigterm_and_takes_its_socket_along(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            daemon = self.start()
            self.client().publish(key(1), b"rows")
            daemon.send_signal(number)
            self.assertEqual(daemon.wait(1800), 0)
            self.assertFalse(self.socket.exists())
            self.assertIn("draining", daemon.stderr.read())
        self.start()
        self.assertEqual(self.client().find(key(1))[2], 1)

    def test_reads_quotas_again_at_sighup(self):
        daemon = self.start()
        client = self.client()
        for number in range(4):
            client.publish(key(number), bytes(1000))
        self.write("quotas", "none 2000\n")
        daemon.send_signal(signal.SIGHUP)
        self.lines_until(daemon, "quotas were read again")
        while client.counters()["chunks"] > 2:
            pass
        self.write("quotas", "no line of quotas\n")
        daemon.send_signal(signal.SIGHUP)
        self.lines_until(daemon, "quotas stay as they are")

    def test_logs_who_came_and_why_they_went(self):
        daemon = self.start()
        client = self.client(b"salt")
        line = self.lines_until(daemon, "connected")[-1]
        self.assertIn(f"client pid={os.getpid()} uid={os.getuid()} tenant=63479ad69a090b25", line)
        client.close()
        self.assertIn("the client", self.lines_until(daemon, "closed")[-1])

    def test_a_second_one_is_refused_with_one_line(self):
        self.start()
        second = self.run_to_end("--set", f"tier.nvme.path={self.folder}/others")
        self.assertEqual(second.returncode, 1)
        self.assertEqual(second.stderr.count("\n"), 1)
        self.assertIn("another terraced", second.stderr)
        self.client()  # the first one is as it was

    def test_a_file_in_use_is_refused_with_one_line(self):
        self.start()
        second = self.run_to_end("--socket", f"{self.folder}/run/second.sock")
        self.assertEqual(second.returncode, 1)
        self.assertEqual(second.stderr.count("\n"), 1)

    def test_checks_its_config(self):
        checked = self.run_to_end("--check")
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))
        self.assertFalse(self.socket.parent.exists())
        for wrong in (("--set", "daemon.memory=much"), ("--set", "daemon.memry=1GiB"),
                      ("--set", "tier.nvme.path="), ("--set", "daemon.allow_users=no such user"),
                      ("--nonsense",)):
            process = self.run_to_end("--check", *wrong)
            self.assertEqual(process.returncode, 2, wrong)
            self.assertEqual(process.stderr.count("\n"), 1, process.stderr)
        (self.folder / "terraced.yaml").unlink()
        self.assertEqual(self.run_to_end("--check").returncode, 1)

    def test_warns_of_more_memory_than_its_file_has(self):
        for memory, lines in (("2MiB", 1), ("1MiB", 0)):
            process = self.run_to_end("--check", "--set", f"tier.nvme.path={self.folder}/chunks",
                                      "--set", "tier.nvme.bytes=1MiB",
                                      "--set", f"daemon.memory={memory}")
            self.assertEqual(process.returncode, 0, process.stderr)
            self.assertEqual(process.stderr.count("tier.nvme.bytes, 1 MiB"), lines, process.stderr)

    def test_its_counters_are_printed(self):
        daemon = self.start()
        self.client().publish(key(1), bytes(1000))
        shown = terrace("stats", "--daemon", self.socket)
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        self.assertRegex(shown.stdout, r"(?m)^chunks\.bytes +1000$")
        document = json.loads(
            terrace("stats", "--daemon", self.socket, "--format", "json").stdout)
        rows = {row["counter"]: row["value"] for row in document["rows"]}
        self.assertEqual((document["command"], rows["chunks"]), ("stats", 1))
        self.assertEqual(rows, rows | {"leases": 0, "reservations": 0})
        daemon.kill()
        daemon.wait()
        away = terrace("stats", "--daemon", self.socket)
        self.assertEqual((away.returncode, away.stderr.count("\n")), (1, 1))

    def test_says_what_it_is(self):
        self.assertIn("terraced", self.run_to_end("--version").stdout)
        self.assertIn("--socket", self.run_to_end("--help").stdout)


if __name__ == "__main__":
    unittest.main()
