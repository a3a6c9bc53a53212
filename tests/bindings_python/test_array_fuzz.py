"""Arrays of NumPy that are odd in each way: right, or refused by name (array_fuzz.py)."""

import array_fuzz


def test_arrays_are_read_as_their_library_says_or_refused_by_name():
    fuzz = array_fuzz.Fuzz()
    for number in range(array_fuzz.cases()):
        fuzz.run(number)
    # Some calls are accepted and some are refused.
    assert min(fuzz.accepted, fuzz.refused) > array_fuzz.cases() // 10
