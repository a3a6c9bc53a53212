"""Facts that are planted in a text, and asked for behind it."""

import random

import torch

FACT = " The number of the lamp in room {room} is {number}. "
QUESTION = "\nThe number of the lamp in room {room} is"


@torch.no_grad()
def ask(count: int, tokenizer, model, tokens: list[int], make_cache) -> dict | None:
    """Plants one fact at a time, at depths that are spread evenly, and continues the question.

    tokens: the text; the fact displaces as many of its tokens. The question is given in the prompt.
    Returns how many answers begin with the number.
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
        prompt = torch.tensor([kept[:place] + fact + kept[place:] + question])
        answer = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                                max_new_tokens=8, past_key_values=make_cache(),
                                pad_token_id=tokenizer.eos_token_id)
        found += str(number) in tokenizer.decode(answer[0, prompt.shape[1]:])
    return {"asked": count, "found": found}
