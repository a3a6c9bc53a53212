"""Facts that are planted in a text, and asked for after it."""

import random

FACT = " The number of the lamp in room {room} is {number}. "
ANSWER_TOKENS = 8
QUESTION = "\nThe number of the lamp in room {room} is"


def ask(count: int, tokenizer, tokens: list[int], answer) -> dict | None:
    """Plants one fact at a time, at depths that are spread evenly, and continues the question.

    tokens: the text; the fact displaces as many of its tokens. The question is given in the prompt.
    answer(prompt, tokens): returns the text of so many tokens after a prompt. Returns how many
    answers have the number.
    """
    if count == 0:
        return None
    draw, found = random.Random(17), 0
    for i in range(count):
        room, number = draw.randint(11, 99), draw.randint(1000, 9999)
        fact = tokenizer(FACT.format(room=room, number=number)).input_ids
        question = tokenizer(QUESTION.format(room=room)).input_ids
        kept = tokens[:len(tokens) - len(fact) - len(question)]
        place = int(len(kept) * (i + 0.5) / count)
        prompt = kept[:place] + fact + kept[place:] + question
        found += str(number) in answer(prompt, ANSWER_TOKENS)
    return {"asked": count, "found": found}
