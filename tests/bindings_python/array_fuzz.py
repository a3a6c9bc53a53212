"""Arrays of all sorts, handed to a step, and held against what their own library says they hold.

A case hands over the arrays of a layer, then one to be read into. Some are odd: by their strides,
type, order of bytes, place, alignment, size, or by bits that PyTorch keeps beside the numbers. A
call that is accepted has to give the attention of the arrays' numbers, or the rows that were
stored, and to write the numbers of its output alone. One that is refused has to be InvalidArgument
in one line, and to name an array that is odd.
"""

import array
import dataclasses
import os

import numpy as np

import engine
import terrace

try:
    import torch
except ImportError:
    torch = None

QUERY_HEADS, KV_HEADS, DIM = engine.QUERY_HEADS, engine.KV_HEADS, 8
HEADS = {"query": QUERY_HEADS, "keys": KV_HEADS, "values": KV_HEADS, "output": QUERY_HEADS,
         "speculated_query": QUERY_HEADS, "target": 2}
LAYER = ("query", "keys", "values", "output")
WIDTHS = {"f32": np.float32, "f16": np.float16}
TOLERANCE = {"f32": 1e-5, "f16": 5e-3, "bf16": 4e-2}
CONTAINERS = (list, tuple, lambda made: (one for one in made))


def cases() -> int:
    """10,000 in `make check-all`, 1,000 in `make test`."""
    return max(50, int(os.environ.get("TERRACE_FUZZ_STEPS", "20000")) // 20)


def seed() -> int:
    return int(os.environ.get("TERRACE_SEED", "1"))


# ---- Views of n tokens, h heads and d numbers: the shape of the memory, and the view of it


def overlapping(memory):
    n, h, d = memory.shape
    if isinstance(memory, np.ndarray):
        size = memory.itemsize
        return np.lib.stride_tricks.as_strided(memory, (n, h, d), (d // 2 * size, d * size, size))
    return memory.as_strided((n, h, d), (d // 2, d, 1))


def repeated(memory, shape):
    return (np.broadcast_to(memory, shape) if isinstance(memory, np.ndarray)
            else memory.expand(shape))


PLAIN = {
    "packed": (lambda n, h, d: (n, h, d), lambda m, n, h, d: m),
    "a part of each token": (lambda n, h, d: (n, h + 3, d), lambda m, n, h, d: m[:, 2:h + 2]),
    "every other token": (lambda n, h, d: (2 * n, h, d), lambda m, n, h, d: m[::2]),
    "from the second token on": (lambda n, h, d: (n + 1, h, d), lambda m, n, h, d: m[1:]),
}
ODD = {
    "heads first": (lambda n, h, d: (h, n, d), lambda m, n, h, d: m.swapaxes(0, 1)),
    "every other number": (lambda n, h, d: (n, h, 2 * d), lambda m, n, h, d: m[:, :, ::2]),
    "every other head": (lambda n, h, d: (n, 2 * h, d), lambda m, n, h, d: m[:, ::2]),
    "numbers first": (lambda n, h, d: (d, h, n), lambda m, n, h, d: m.swapaxes(0, 2)),
    "one token again and again": (lambda n, h, d: (1, h, d),
                                  lambda m, n, h, d: repeated(m, (n, h, d))),
    "one head again and again": (lambda n, h, d: (n, 1, d),
                                 lambda m, n, h, d: repeated(m, (n, h, d))),
    "one number again and again": (lambda n, h, d: (n, h, 1),
                                   lambda m, n, h, d: repeated(m, (n, h, d))),
    "tokens that overlap": (lambda n, h, d: (n, h, d), lambda m, n, h, d: overlapping(m)),
    "a token more": (lambda n, h, d: (n + 1, h, d), lambda m, n, h, d: m),
    "a head more": (lambda n, h, d: (n, h + 1, d), lambda m, n, h, d: m),
    "half of the numbers": (lambda n, h, d: (n, h, d // 2), lambda m, n, h, d: m),
    "nothing": (lambda n, h, d: (0, h, d), lambda m, n, h, d: m),
    "two dimensions": (lambda n, h, d: (n, h * d), lambda m, n, h, d: m),
    "no dimension": (lambda n, h, d: (1,), lambda m, n, h, d: m.reshape(())),
    "five dimensions": (lambda n, h, d: (1, 1, n, h, d), lambda m, n, h, d: m),
}
ODD_OF_NUMPY = {
    "backwards": (lambda n, h, d: (n, h, d), lambda m, n, h, d: m[::-1]),
    "heads backwards": (lambda n, h, d: (n, h, d), lambda m, n, h, d: m[:, ::-1]),
    "numbers backwards": (lambda n, h, d: (n, h, d), lambda m, n, h, d: m[:, :, ::-1]),
}

# ---- The forms in which a library's array is passed


class WithDlpack:
    """An object of some other library."""

    def __init__(self, numbers) -> None:
        self._numbers = numbers

    def __dlpack__(self, **options):
        return self._numbers.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._numbers.__dlpack_device__()


def read_only(numbers):
    numbers = numbers.view()
    numbers.flags.writeable = False
    return numbers


def misaligned(numbers):
    memory = bytearray(numbers.nbytes + 1)
    moved = np.frombuffer(memory, np.uint8)[1:].view(numbers.dtype).reshape(numbers.shape)
    moved[...] = numbers
    return moved


def in_records(numbers):
    """Gives strides that are no multiples of the numbers' size."""
    records = np.zeros(numbers.shape, [("mark", "i1"), ("number", numbers.dtype)])
    records["number"] = numbers
    return records["number"]


def masked(numbers):
    return np.ma.masked_array(numbers, numbers > 0.5)


FORMS_OF_NUMPY = {
    "a list": lambda x: x.tolist(),
    "None": lambda x: None,
    "text": lambda x: "numbers",
    "a number": lambda x: 1.0,
    "a type": lambda x: type(x),
    "read-only": read_only,
    "the other order of bytes": lambda x: x.astype(x.dtype.newbyteorder()),
    "masked": masked,
    "misaligned": misaligned,
    "records": in_records,
    "objects": lambda x: x.astype(object),
    "a buffer": lambda x: memoryview(np.ascontiguousarray(x)),
    "an array of the standard library": lambda x: array.array("f", x.ravel().tolist()),
    "bytes": lambda x: x.tobytes(),
    "DLPack alone": WithDlpack,
    **{f"as {kind}": lambda x, kind=kind: x.astype(kind)
       for kind in ("f8", "f4", "f2", "i4", "u1", "?", "c8")},
}


def negated_lazily(x):
    return torch.complex(torch.zeros_like(x), x).conj().imag if x.dtype == torch.float32 else \
        torch._neg_view(x)


FORMS_OF_TORCH = {
    "a list": lambda x: x.tolist(),
    "None": lambda x: None,
    "a buffer of NumPy": lambda x: x.float().numpy(),
    "negated lazily": negated_lazily,
    "a conjugate": lambda x: x.to(torch.complex64).conj(),
    "with gradients": lambda x: x.detach().clone().requires_grad_(),
    "a parameter": lambda x: torch.nn.Parameter(x.clone()),
    "without memory": lambda x: x.to("meta"),
    "sparse": lambda x: x.to_sparse(),
    "zero without memory": lambda x: torch._efficientzerotensor(x.shape, dtype=x.dtype),
    "memory that was given back": lambda x: _freed(x.clone()),
    "DLPack alone": WithDlpack,
    **{f"as {kind}": lambda x, kind=kind: x.to(getattr(torch, kind))
       for kind in ("float64", "float32", "float16", "bfloat16", "int32", "uint8", "bool",
                    "complex64")},
}


def _freed(x):
    x.untyped_storage().resize_(0)
    return x


# ---- Cases


@dataclasses.dataclass
class Given:
    """An array as it is passed. numbers: its numbers as its library reads them, f32, or None if it
    has no numbers; memory: all memory that it is a view of, before the call; places: of its numbers
    in the memory."""

    what: str
    object: object
    memory: object = None
    places: object = None

    @property
    def is_odd(self) -> bool:
        return self.what not in PLAIN


def numbers_of(thing):
    """Returns an array's numbers as its library reads them, f32; None if it is no array of numbers
    that a step accepts."""
    if isinstance(thing, WithDlpack):
        thing = thing._numbers
    if torch is not None and isinstance(thing, torch.Tensor):
        kinds = (torch.float32, torch.float16, torch.bfloat16)
        if thing.is_meta or thing.layout != torch.strided or thing.dtype not in kinds:
            return None
        if thing.numel() > 0 and thing.untyped_storage().nbytes() == 0:
            return None
        return thing.detach().resolve_neg().clone().float().numpy()
    if isinstance(thing, np.ma.MaskedArray):
        return thing.filled(np.nan).astype(np.float32)
    if isinstance(thing, (np.ndarray, memoryview)):
        numbers = np.asarray(thing)
        return numbers.astype(np.float32) if numbers.dtype in (np.float32, np.float16) else None
    return None


def choose(rng, library, is_odd) -> tuple[str, str | None]:
    """Returns the names of a view and a form; the form is None for an unchanged array."""
    if not is_odd:
        return str(rng.choice(list(PLAIN))), None
    if rng.random() < 0.5:
        return str(rng.choice(list(ODD) + (list(ODD_OF_NUMPY) if library is np else []))), None
    forms = FORMS_OF_NUMPY if library is np else FORMS_OF_TORCH
    return str(rng.choice(list(PLAIN))), str(rng.choice(list(forms)))


def make(rng, library, name, tokens, dtype, what, form):
    """Makes an array of [tokens, heads, DIM], or something else where it is odd."""
    shape_of, view_of = {**PLAIN, **ODD, **ODD_OF_NUMPY}[what]
    sizes = tokens, HEADS[name], DIM
    shape = shape_of(*sizes)
    memory = rng.standard_normal(shape).astype(np.float32)
    places = np.arange(memory.size).reshape(shape)
    if library is np:
        memory = memory.astype(WIDTHS[dtype])
    else:
        memory = torch.from_numpy(memory).to(
            {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype])
        places = torch.from_numpy(places)
    places = np.asarray(view_of(places, *sizes))
    view = view_of(memory, *sizes)
    if form is None:
        return Given(what, view, memory, places)
    forms = FORMS_OF_NUMPY if library is np else FORMS_OF_TORCH
    return Given(f"{what}, {form}", forms[form](view))


def share(rng, given):
    """Has the output be another array, or lie in its memory."""
    name = rng.choice(["query", "keys", "values"])
    other = given[name].object
    if rng.random() < 0.5 and name == "query":
        given["output"] = Given("the memory of query", other)
        return
    tokens = given["output"].object.shape[0]
    heads = HEADS[name] + QUERY_HEADS
    memory = (np.zeros((tokens, heads, DIM), other.dtype) if isinstance(other, np.ndarray)
              else other.new_zeros((tokens, heads, DIM)))
    memory[:, :HEADS[name]] = other
    first = HEADS[name] - int(rng.integers(0, 2))
    given[name] = dataclasses.replace(given[name], object=memory[:, :HEADS[name]])
    given["output"] = Given(f"the memory of {name}", memory[:, first:first + QUERY_HEADS])


def bytes_of(memory):
    if torch is not None and isinstance(memory, torch.Tensor):
        memory = memory.reshape(-1).view(torch.uint8).numpy() if memory.numel() else np.zeros(0)
    return memory.tobytes()


class Fuzz:
    """Runs cases, and counts what was done with them."""

    def __init__(self) -> None:
        self.accepted, self.refused = 0, 0
        self._runtimes = {}

    def runtime(self, dtype):
        """Returns a runtime and its queues: one that works at once, and one that works later."""
        if dtype not in self._runtimes:
            opened = terrace.Runtime(engine.EXACT, layers=1, query_heads=QUERY_HEADS,
                                     kv_heads=KV_HEADS, head_dim=DIM, dtype=dtype)
            self._runtimes[dtype] = opened, opened.wrap_caller(), opened.open_queue()
        return self._runtimes[dtype]

    def run(self, number: int) -> None:
        rng = np.random.default_rng([seed(), number])
        library = torch if torch is not None and rng.random() < 0.7 else np
        dtype = str(rng.choice(["f32", "f16"] if library is np else ["f32", "f16", "bf16"]))
        tokens = int(rng.integers(1, 6))
        names = [*LAYER, *(["speculated_query"] if rng.random() < 0.2 else [])]
        odd = set(rng.choice(names, int(rng.integers(0, 3)), replace=False))
        chosen = {name: choose(rng, library, name in odd) for name in names}
        if rng.random() < 0.8:
            chosen["values"] = chosen["keys"]  # which lie in memory in the same way
        given = {name: make(rng, library, name, tokens,
                            "f32" if name == "speculated_query" else dtype, *chosen[name])
                 for name in names}
        if not odd and rng.random() < 0.3:
            share(rng, given)
        case = f"TERRACE_SEED={seed()}, case {number}, {dtype}, {tokens} tokens: "
        stored = self.attend(case, dtype, tokens, given, rng.random() < 0.5,
                             CONTAINERS[int(rng.integers(0, len(CONTAINERS)))])
        if stored is not None:
            target = make(rng, library, "target", tokens, dtype,
                          *choose(rng, library, rng.random() < 0.5))
            self.read_rows(case, dtype, *stored, target)

    def attend(self, case, dtype, tokens, given, is_later, hold):
        """`hold` makes the containers of arguments. Returns the sequence and its rows, [heads,
        tokens, 2, DIM], where they were accepted."""
        case += ", ".join(f"{name}: {one.what}" for name, one in given.items())
        runtime, *queues = self.runtime(dtype)
        before = {name: numbers_of(one.object) for name, one in given.items()}
        memory = None if given["output"].memory is None else bytes_of(given["output"].memory)
        sequence = runtime.open_sequence()
        sequence.begin_prompt(tokens)
        with runtime.begin_step(hold([sequence]), queues[is_later], hold([tokens])) as step:
            try:
                step.attend(0, hints=hold([terrace.Hints()]),
                            **{name: one.object for name, one in given.items()})
            except terrace.Error as error:
                self.check_refused(case, given, error)
                return None
            step.end()
        self.check_accepted(case, dtype, given, before, memory)
        return sequence, np.stack([before["keys"], before["values"]], 2).swapaxes(0, 1)

    def read_rows(self, case, dtype, sequence, rows, target) -> None:
        """Reads all rows of the last head."""
        case += f"target: {target.what}"
        memory = None if target.memory is None else bytes_of(target.memory)
        head, tokens = len(rows) - 1, rows.shape[1]
        try:
            sequence.read_rows(0, head, range(tokens), target.object)
        except terrace.Error as error:
            self.refused += 1
            message = str(error)
            assert type(error) is terrace.InvalidArgument and "\n" not in message, (case, message)
            assert message.startswith("target ") and target.what != "packed", (case, message)
            return
        self.accepted += 1
        assert np.array_equal(numbers_of(target.object), rows[head]), case
        if memory is not None:
            self.check_rest(case, target, memory)

    def check_refused(self, case, given, error) -> None:
        self.refused += 1
        message = str(error)
        assert type(error) is terrace.InvalidArgument and "\n" not in message, (case, message)
        odd = [name for name, one in given.items() if one.is_odd]
        if message.startswith("keys and values lie in memory in different ways"):
            return
        if "query" in odd:
            odd.append("output")  # which is of the query's type
        assert any(message.startswith(name + " ") for name in odd), (case, message)
        assert len(message) < 200, (case, message)

    def check_accepted(self, case, dtype, given, before, memory) -> None:
        self.accepted += 1
        inputs = [name for name in given if name != "output"]
        if given.get("speculated_query", given["query"]).object is None:
            inputs.remove("speculated_query")  # which need not be given
        for name in inputs:
            assert before[name] is not None, case
            after = numbers_of(given[name].object)
            assert np.array_equal(after, before[name], equal_nan=True), (case, name)
        expected = engine.attend(before["query"], before["keys"], before["values"])
        found = numbers_of(given["output"].object)
        assert found is not None and found.shape == expected.shape, case
        error = np.abs(found - expected).max()
        # The output is of the query's type, which may be another one than the rows'.
        tolerance = TOLERANCE["bf16" if given["query"].is_odd else dtype]
        assert error <= tolerance * max(1, np.abs(expected).max()), (case, error)
        if memory is not None:
            self.check_rest(case, given["output"], memory)

    @staticmethod
    def check_rest(case, output, memory) -> None:
        """Memory beside the output's numbers is as before."""
        size = output.memory.itemsize
        rest = np.ones(len(memory) // size, bool)
        rest[output.places.ravel()] = False
        now, then = (np.frombuffer(kept, np.uint8).reshape(-1, size)
                     for kept in (bytes_of(output.memory), memory))
        assert np.array_equal(now[rest], then[rest]), case
