"""The scheduler's side of vLLM's plugin, without vLLM: which pages are given back, and which
sequences are kept."""

import numpy as np
from terrace.vllm.ledger import Ledger, Orders, Prefix, Report
from terrace.vllm.shelf import Kept, Shelf


def keeping(limit=1000) -> Ledger:
    ledger = Ledger()
    ledger.shelf.limit = limit
    return ledger


def end(ledger, name, tokens, salt=None):
    ledger.end(name, tokens, salt)
    ledger.free(name)


def test_what_is_given_back_is_told_once():
    ledger = Ledger()
    ledger.note(Report(held={"a": 70}))
    assert (ledger.held("a"), ledger.given_back("a")) == (70, 0)
    ledger.give_back("a", 64)
    assert ledger.given_back("a") == 64
    assert ledger.take_orders() == Orders(given_back={"a": 64})
    assert ledger.take_orders() == Orders()


def test_a_request_that_begins_anew_has_given_nothing_back():
    ledger = Ledger()
    ledger.note(Report(held={"a": 70}))
    ledger.give_back("a", 64)
    ledger.free("a")
    assert (ledger.held("a"), ledger.given_back("a")) == (0, 0)
    assert ledger.take_orders() == Orders()


def test_sequences_of_requests_that_have_ended_are_found():
    ledger = keeping()
    ledger.note(Report(held={"a": 70}))
    end(ledger, "a", np.arange(80))
    assert ledger.take_orders() == Orders(laid_aside=["a"])
    tokens = np.concatenate([np.arange(66), np.arange(9)])
    assert ledger.shelf.find("b", tokens, None) == ("a", 66)
    assert ledger.shelf.find("b", np.arange(90), None) == ("a", 70)
    assert ledger.shelf.find("b", np.arange(90), "salt") == (None, 0)
    ledger.note(Report(dropped=["a"]))
    assert ledger.shelf.find("b", tokens, None) == (None, 0)


def test_without_a_limit_nothing_is_kept():
    ledger = Ledger()
    ledger.note(Report(held={"a": 70}))
    end(ledger, "a", np.arange(80))
    assert ledger.take_orders() == Orders()
    assert len(ledger.shelf) == 0


def test_a_request_that_lost_its_pages_finds_its_own_sequence():
    ledger = keeping()
    ledger.note(Report(held={"a": 70}))
    ledger.free("a")
    assert ledger.take_orders() == Orders(laid_aside=["a"])
    assert ledger.shelf.find("b", np.arange(90), None) == (None, 0)
    assert ledger.shelf.find("a", np.arange(90), None) == ("a", 70)
    assert ledger.shelf.find("a", np.arange(60), None) == ("a", 60)


def test_a_request_that_ends_without_pages_is_kept_for_others():
    ledger = keeping()
    ledger.note(Report(held={"a": 70}))
    ledger.free("a")
    end(ledger, "a", np.arange(80))
    assert ledger.take_orders() == Orders(laid_aside=["a"])
    assert ledger.shelf.find("b", np.arange(90), None) == ("a", 70)


def test_another_request_of_the_same_name_leaves_the_sequence_its_tokens():
    ledger = keeping()
    ledger.note(Report(held={"a": 70}))
    end(ledger, "a", np.arange(80))
    ledger.take_orders()
    end(ledger, "a", np.arange(100, 180))  # it decoded nothing, so that no row of it is held
    assert ledger.take_orders() == Orders()
    assert ledger.shelf.find("b", np.arange(90), None) == ("a", 70)
    assert ledger.shelf.find("b", np.arange(100, 190), None) == (None, 0)


def test_a_request_whose_rows_depend_on_more_than_tokens_is_not_kept():
    ledger = keeping()
    ledger.note(Report(held={"a": 70}))
    ledger.free("a")
    ledger.take_orders()
    end(ledger, "a", None)
    assert ledger.take_orders() == Orders(dropped=["a"])
    assert len(ledger.shelf) == 0


def test_the_shelf_keeps_what_was_of_use_last():
    shelf = Shelf(limit=100)
    for number in range(3):
        assert shelf.put(str(number), Kept(30, np.arange(30) + number)) == []
    shelf.use("0")
    assert shelf.put("3", Kept(30, np.arange(30) + 3, "salt")) == ["1"]
    found = [shelf.find("x", np.arange(40) + number, None)[1] for number in range(4)]
    assert found == [30, 0, 30, 0]
    assert shelf.find("x", np.arange(40) + 3, "salt") == ("3", 30)
    assert shelf.put("huge", Kept(101, None)) == ["huge"]
    assert sorted(shelf.clear()) == ["0", "2", "3"]


def test_a_sequence_is_of_no_use_beside_one_that_begins_with_it():
    shelf = Shelf(limit=100)
    shelf.put("first turn", Kept(30, np.arange(30)))
    shelf.put("another salt", Kept(20, np.arange(20), "salt"))
    assert shelf.put("second turn", Kept(50, np.arange(50))) == ["first turn"]
    assert len(shelf) == 2


def with_file(**options) -> Ledger:
    """One whose prompts a file keeps, in chunks of 32 tokens."""
    ledger = keeping(**options)
    ledger.chunk_tokens = 32
    return ledger


def test_the_file_is_asked_once_for_each_request():
    ledger = with_file()
    wanted = Prefix("a", np.arange(99), "salt", 48)
    assert ledger.asks(wanted) and ledger.asks(wanted)
    orders = ledger.take_orders()
    assert [(one.name, one.salt) for one in orders.asked] == [("a", "salt")]
    ledger.settle(orders.asked, {"a": 96})
    assert not ledger.asks(wanted)
    assert ledger.shelf.find("a", np.arange(99), "salt") == ("prefix of a", 96)
    assert ledger.shelf.find("b", np.arange(70), "salt") == ("prefix of a", 70)
    assert ledger.shelf.find("a", np.arange(99), None) == (None, 0)
    assert ledger.take_orders() == Orders()


def test_the_file_is_not_asked_for_what_is_known():
    ledger = with_file()
    assert not ledger.asks(Prefix("a", np.arange(31)))
    assert not ledger.asks(Prefix("b", np.arange(127), known=96))
    assert not keeping().asks(Prefix("c", np.arange(99)))
    assert not with_file(limit=0).asks(Prefix("d", np.arange(99)))


def test_a_request_that_is_not_in_the_file_goes_on():
    for found in ({"a": 0}, {}, None):
        ledger = with_file()
        assert ledger.asks(Prefix("a", np.arange(99)))
        ledger.settle(ledger.take_orders().asked, found)
        assert not ledger.asks(Prefix("a", np.arange(99)))
        assert len(ledger.shelf) == 0
        # Where nobody answers, nobody is asked again.
        assert ledger.asks(Prefix("b", np.arange(99))) == (found is not None)


def test_a_prefix_that_the_shelf_has_no_room_for_is_dropped():
    ledger = with_file(limit=64)
    ledger.asks(Prefix("a", np.arange(99)))
    ledger.settle(ledger.take_orders().asked, {"a": 96})
    assert ledger.take_orders() == Orders(dropped=["prefix of a"])


def test_a_prefix_that_is_found_twice_is_kept():
    ledger = with_file()
    for _ in range(2):
        ledger.asks(Prefix("a", np.arange(99)))
        ledger.settle(ledger.take_orders().asked, {"a": 96})
        end(ledger, "a", np.arange(99))
    assert ledger.take_orders() == Orders()
    assert ledger.shelf.find("b", np.arange(99), None) == ("prefix of a", 96)


def published(ledger) -> list[tuple[str, int, str | None]]:
    return [(one.name, len(one.tokens), one.salt) for one in ledger.take_orders().published]


def test_requests_that_have_ended_are_published():
    ledger = with_file()
    ledger.note(Report(held={"a": 70, "short": 31, "picture": 70}))
    end(ledger, "a", np.arange(80), "salt")
    end(ledger, "short", np.arange(32))
    end(ledger, "picture", None)
    end(ledger, "unseen", np.arange(80))
    assert published(ledger) == [("a", 70, "salt")]
    ledger = with_file(limit=0)  # also where no sequence is kept
    ledger.note(Report(held={"a": 70}))
    end(ledger, "a", np.arange(80))
    assert published(ledger) == [("a", 70, None)]


def test_a_request_is_published_when_it_ends_and_not_when_it_loses_its_pages():
    ledger = with_file()
    ledger.note(Report(held={"a": 70}))
    ledger.free("a")
    assert published(ledger) == []
    end(ledger, "a", np.arange(80))
    assert published(ledger) == [("a", 70, None)]


def test_another_request_of_the_same_name_publishes_no_rows_of_the_first():
    ledger = with_file()
    ledger.note(Report(held={"a": 70}))
    end(ledger, "a", np.arange(80))
    assert published(ledger) == [("a", 70, None)]
    end(ledger, "a", np.arange(100, 180))
    assert published(ledger) == []


def test_the_file_is_left_alone_after_weights_may_have_changed():
    ledger = with_file()
    ledger.asks(Prefix("a", np.arange(99)))
    asked = ledger.take_orders().asked
    ledger.note(Report(held={"b": 70}))
    end(ledger, "b", np.arange(80))
    ledger.clear()
    ledger.settle(asked, {"a": 96})
    orders = ledger.take_orders()
    assert (orders.published, sorted(orders.dropped)) == ([], ["b", "prefix of a"])
    assert not ledger.asks(Prefix("c", np.arange(99)))
    ledger.note(Report(held={"d": 70}))
    end(ledger, "d", np.arange(80))
    assert published(ledger) == []
