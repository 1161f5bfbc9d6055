"""A training of `test_goodput.py`: steps and checkpoints are sleeps of random length, and all that
is done is logged by the clock. `python told_training.py FOLDER SEED`
"""

import json
import os
import random
import sys
import time

import trainyard

STEPS, EVERY = 120, 12
folder, seed = sys.argv[1:]
rng = random.Random(f"{seed} {time.time_ns()}")
checkpoint = f"{folder}/checkpoint"


def log(what: str, step: int) -> None:
    """One line, written at once."""
    with open(f"{folder}/log", "a") as file:
        file.write(json.dumps([what, step, time.time()]) + "\n")


def saved() -> int:
    """The step of the last checkpoint."""
    try:
        with open(checkpoint) as file:
            return int(file.read())
    except FileNotFoundError:
        return 0


def save(step: int) -> str:
    """Takes a while, and is there as a whole or not at all."""
    time.sleep(rng.uniform(0.1, 0.5))
    with open(f"{checkpoint}.new", "w") as file:
        file.write(str(step))
    os.replace(f"{checkpoint}.new", checkpoint)
    return checkpoint


if os.environ["RANK"] != "0":
    while saved() < STEPS:
        time.sleep(0.05)
    sys.exit()
time.sleep(rng.uniform(0.2, 1.0))
start = saved()
log("begin", start)
trainyard.report(step=start, total=STEPS)
for step in range(start + 1, STEPS + 1):
    time.sleep(rng.uniform(0.02, 0.16))
    log("step", step)
    trainyard.report(step=step, loss=1 / step)
    if step % EVERY == 0 or step == STEPS:
        log("saving", step)
        trainyard.report(saving=True)
        save(step)
        log("saved", step)
        trainyard.report(step=step, checkpoint=checkpoint)
