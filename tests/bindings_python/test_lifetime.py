"""Objects closed or dropped in any order, forks, threads, signals, and the end of Python."""

import gc
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import engine
import terrace
from engine import DIM, KV_HEADS, LAYERS, QUERY_HEADS, Member, run_step


def open_all():
    runtime = engine.open_runtime()
    queue = runtime.open_queue()
    sequence = runtime.open_sequence()
    step = runtime.begin_step([sequence], queue)
    query = np.zeros((1, QUERY_HEADS, DIM), np.float32)
    rows = np.zeros((1, KV_HEADS, DIM), np.float32)
    step.attend(0, query, rows, rows, np.empty_like(query))
    return [runtime, queue, sequence, step]


@pytest.mark.parametrize("how", ["close", "drop"])
def test_any_order(how):
    for order in itertools.permutations(range(4)):
        objects = open_all()
        for i in order:
            if how == "close":
                objects[i].close()
                objects[i].close()
            objects[i] = None
            gc.collect(0)


def test_what_is_closed_says_so():
    runtime, queue, sequence, step = open_all()
    for thing in (step, sequence, queue, runtime):
        thing.close()
    assert sequence.phase == "closed"
    for call in (step.end, sequence.counters, queue.drain, runtime.open_sequence):
        with pytest.raises(terrace.InvalidArgument, match="is closed"):
            call()


def test_an_exception_in_a_step_leaves_sequences_as_they_were():
    runtime, queue = engine.open_runtime(), None
    queue = runtime.wrap_caller()
    member = Member(runtime.open_sequence(), 0)
    run_step(runtime, queue, [member], [1])
    with pytest.raises(ZeroDivisionError):
        with runtime.begin_step([member.sequence], queue):
            1 / 0
    assert (len(member.sequence), member.sequence.phase) == (1, "idle")
    assert run_step(runtime, queue, [member], [1]) < 1e-5


def test_threads_take_turns_on_a_sequence_and_run_beside_each_other():
    runtime = engine.open_runtime()
    errors = []

    def work(seed):
        try:
            queue, member = runtime.wrap_caller(), Member(runtime.open_sequence(), seed)
            for _ in range(20):
                errors.append(run_step(runtime, queue, [member], [1]))
                other.counters()
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    other = runtime.open_sequence()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 80
    assert max(errors) < 1e-5


def test_the_child_of_a_fork_is_told_so():
    runtime, queue, sequence, step = open_all()
    child = os.fork()
    if child == 0:
        told = 0
        for call in (sequence.counters, step.end, lambda: engine.open_runtime()):
            try:
                call()
            except terrace.InvalidArgument as error:
                told += "spawn" in str(error)
        step.close()
        del runtime, queue, sequence, step
        gc.collect()
        os._exit(told)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    step.close()
    assert len(sequence) == 0


def run_python(program, **popen):
    return subprocess.run([sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program)],
                          capture_output=True, text=True, cwd=os.path.dirname(__file__), **popen)


def test_a_step_that_is_dropped_keeps_tensors_until_its_work_is_done():
    done = run_python("""
        import numpy as np
        import engine
        runtime = engine.open_runtime({"retrieval.budget": 10000})
        queue, sequence = runtime.open_queue(), runtime.open_sequence()
        tokens = 2000
        sequence.begin_prompt(tokens)
        query = np.ones((tokens, engine.QUERY_HEADS, engine.DIM), np.float32)
        rows = np.ones((tokens, engine.KV_HEADS, engine.DIM), np.float32)
        step = runtime.begin_step([sequence], queue, [tokens])
        step.attend(0, query, rows, rows, np.empty_like(query))
        del query, rows
        del step  # which held the last references to the arrays' memory
        queue.drain()
    """)
    assert (done.returncode, done.stderr) == (0, ""), done


@pytest.mark.parametrize("end", ["pass", "raise SystemExit(0)", "sys.exit()"])
def test_python_ends_with_everything_open(end):
    done = run_python(f"""
        import sys
        import test_lifetime
        kept = test_lifetime.open_all()
        cycle = [kept]
        cycle.append(cycle)
        {end}
    """)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("call", [
    "step.attend(0, query, rows, rows, output)",  # works when Python ends
    "queue.drain(600)",                           # waits, again and again
    "engine.open_runtime().open_sequence()",      # opens a sequence that is never closed
    "sequence.counters()",                        # is refused: in a step
])
def test_python_ends_while_a_daemon_thread_is_in_a_call(call):
    done = run_python(f"""
        import threading
        import numpy as np
        import engine
        import terrace
        runtime = engine.open_runtime({{"retrieval.budget": 10000}})
        queue, sequence = runtime.open_queue(), runtime.open_sequence()
        tokens = 4000
        sequence.begin_prompt(tokens)
        query = np.ones((tokens, engine.QUERY_HEADS, engine.DIM), np.float32)
        rows = np.ones((tokens, engine.KV_HEADS, engine.DIM), np.float32)
        output = np.empty_like(query)
        step = runtime.begin_step([sequence], runtime.wrap_caller(), [tokens])
        begun = threading.Event()

        def work():
            while True:
                begun.set()
                try:
                    {call}
                except terrace.Error:
                    pass

        threading.Thread(target=work, daemon=True).start()
        begun.wait()
    """)
    assert (done.returncode, done.stderr) == (0, ""), done


def test_control_c_ends_a_wait():
    """A queue that is never empty: its work is a prompt of many tokens."""
    done = run_python("""
        import _thread, threading
        import numpy as np
        import engine
        runtime = engine.open_runtime({"retrieval.budget": 10000})
        queue, sequence = runtime.open_queue(), runtime.open_sequence()
        tokens = 8000
        sequence.begin_prompt(tokens)
        query = np.ones((tokens, engine.QUERY_HEADS, engine.DIM), np.float32)
        rows = np.ones((tokens, engine.KV_HEADS, engine.DIM), np.float32)
        with runtime.begin_step([sequence], queue, [tokens]) as step:
            step.attend(0, query, rows, rows, np.empty_like(query))
            threading.Timer(0.02, _thread.interrupt_main).start()
            try:
                queue.drain(600)
                print("drained")
            except KeyboardInterrupt:
                print("interrupted")
    """)
    assert done.stdout == "interrupted\n", done
