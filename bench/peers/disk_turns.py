"""Turns of bench/peers/disk.py: a disk store, or fio, moves its pages in files of its own."""

import json
import mmap
import os
import pathlib
import select
import subprocess
import tempfile
import typing

PATIENCE_SECONDS = 300


class Failed(Exception):
    """A store could not be started or asked, or its pages are not what was written."""


class Load(typing.NamedTuple):
    """The pages that each store moves, and how many are under way."""

    page_bytes: int
    pages: int
    batch_pages: int
    batches: int
    reads: int  # of all pages, in each turn

    @property
    def bytes(self) -> int:
        return self.page_bytes * self.pages


def kernel_seconds() -> float:
    """Returns the time that the kernel's own threads have had: block and file system workers."""
    nanoseconds = 0
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if parent == "2":
                nanoseconds += int((process / "schedstat").read_text().split()[0])
        except OSError:
            continue  # it has ended
    return 1e-9 * nanoseconds


def flip_bit(folder: pathlib.Path, found_by: bytes) -> None:
    """Flips a bit of the page that has these bytes, in whatever file of the folder it lies."""
    for path in (one for one in folder.rglob("*") if one.is_file() and one.stat().st_size):
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
            at = content.find(found_by)
            if at < 0:
                continue
            content[at] ^= 1
            content.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return
    raise Failed("the page is in none of its files")


class StoreProcess:
    """A store that answers lines, as disk_terrace.cpp and disk_stores.py do."""

    def __init__(self, command: list, folder: pathlib.Path) -> None:
        self.said = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([*map(str, command)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.said, cwd=folder,
                                        text=True)
        self.version = self.answer()

    def __enter__(self) -> "StoreProcess":
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.said.close()

    def ask(self, line: str) -> dict:
        try:
            print(line, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass  # no answer says so
        return self.answer()

    def answer(self) -> typing.Any:
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_SECONDS)
        line = self.process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        reason = self.last_words() if ready else f"no answer in {PATIENCE_SECONDS} s"
        self.close()
        raise Failed(reason)

    def last_words(self) -> str:
        self.process.wait()
        self.said.seek(0)
        lines = [line.strip() for line in self.said if line.strip()]
        return lines[-1] if lines else f"ended with status {self.process.returncode}"


def flipped_bit(store: StoreProcess, folder: pathlib.Path, page: int) -> str:
    """Returns what a store says of a page with a flipped bit."""
    flip_bit(folder, bytes.fromhex(store.ask(f"bytes {page}")["hex"]))
    answer = store.ask(f"again {page}")
    if answer["error"]:
        return f"noticed: {answer['error']}"
    return "not noticed: " + ("the page is as it was" if answer["same"] else "wrong bytes, success")


def figures_of(load: Load, answer: dict) -> dict:
    gigabytes = 1e-9 * load.bytes
    return {"rate": gigabytes / answer["seconds"], "cpu": answer["cpu_seconds"] / gigabytes}


def store_turn(command: list, load: Load, folder: pathlib.Path) -> dict:
    """Has a store write all pages, read them several times, and read one with a flipped bit."""
    arguments = [folder, load.page_bytes, load.pages, load.batch_pages, load.batches]
    with StoreProcess([*command, *arguments], folder) as store:
        os.sync()
        written = figures_of(load, store.ask("write"))
        turn = {"version": store.version, "written": [written["rate"]],
                "read": [], "read_cpu": [], "read_kernel": []}
        os.sync()
        for _ in range(load.reads):
            kernel = kernel_seconds()
            read = figures_of(load, store.ask("read"))
            kernel = kernel_seconds() - kernel
            if not store.ask("check")["same"]:
                raise Failed("read other bytes than were written")
            turn["read"].append(read["rate"])
            turn["read_cpu"].append(read["cpu"])
            turn["read_kernel"].append(kernel / (1e-9 * load.bytes))
        return turn | {"flipped": flipped_bit(store, folder, load.pages // 3)}


def run_fio(load: Load, file: pathlib.Path, kind: str) -> dict:
    """Returns the seconds of fio over all pages once; their bytes are not looked at."""
    command = ["fio", "--name=pages", f"--filename={file}", f"--size={load.bytes}",
               f"--bs={load.page_bytes}", f"--rw={kind}", "--ioengine=io_uring", "--direct=1",
               "--fixedbufs=1", "--registerfiles=1",
               f"--iodepth={load.batch_pages * load.batches}", "--invalidate=0",
               "--output-format=json"]
    process = subprocess.run(command, check=False, capture_output=True, text=True)
    if process.returncode != 0:
        raise Failed((process.stderr or process.stdout).strip().splitlines()[-1])
    (job,) = json.loads(process.stdout)["jobs"]
    its = job["write" if kind == "write" else "read"]
    if its["io_bytes"] != load.bytes:
        raise Failed(f"fio moved {its['io_bytes']} bytes")
    share = (job["usr_cpu"] + job["sys_cpu"]) / 100
    return {"seconds": load.bytes / its["bw_bytes"],
            "cpu_seconds": share * 1e-3 * job["job_runtime"]}


def fio_turn(load: Load, folder: pathlib.Path) -> dict:
    """Has fio do the same, and look at no byte."""
    try:
        version = subprocess.run(["fio", "--version"], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise Failed("fio is not installed; tools/install-packages peers") from None
    os.sync()
    written = figures_of(load, run_fio(load, folder / "pages", "write"))
    os.sync()
    reads = [figures_of(load, run_fio(load, folder / "pages", "randread"))
             for _ in range(load.reads)]
    return {"version": version.stdout.strip().removeprefix("fio-"), "written": [written["rate"]],
            "read": [read["rate"] for read in reads], "read_cpu": [read["cpu"] for read in reads]}
