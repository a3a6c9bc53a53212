"""As test_array_fuzz.py, with tensors of PyTorch, too."""

import array_fuzz


def test_tensors_are_read_as_pytorch_says_or_refused_by_name():
    fuzz = array_fuzz.Fuzz()
    for number in range(array_fuzz.cases()):
        fuzz.run(number)
    assert array_fuzz.torch is not None
    assert min(fuzz.accepted, fuzz.refused) > array_fuzz.cases() // 10
