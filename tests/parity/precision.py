"""What computing in bf16 costs: the error of fovea and of transformers in bf16 against transformers
in float32, on random bf16 networks with images and without, over the same greedy tokens (fovea's).

An error is relative L2 over the logits of all steps. The mean of ours may be at most LIMIT times the
mean of theirs: of one network either can be luckier.
"""
import dataclasses
import statistics

import numpy as np
import torch

import cases
import reference

LIMIT = 1.2
N_TOKENS = 16


def relative_l2(logits, exact):
    return float(np.linalg.norm(logits - exact) / np.linalg.norm(exact))


def errors(case, program, directory):
    from run import put_checkpoints, put_images
    images = put_images(case, directory)
    our_dir, their_dir = put_checkpoints(case, program, directory)
    ours = program.trace(case, our_dir, images, directory / "trace", N_TOKENS, compute="bf16")

    def theirs(dtype):
        ref = reference.Reference(their_dir, case.has_vision, dtype)
        return ref.run(case, images, N_TOKENS, forced=ours["tokens"])["logits"]
    exact = theirs(torch.float32)
    return relative_l2(ours["logits"], exact), relative_l2(theirs(torch.bfloat16), exact)


def run(program, n, seed, directory):
    found = []
    for case in cases.make_cases(n - n // 3, seed) + cases.make_text_cases(n // 3, seed):
        case = dataclasses.replace(case, dtype="bf16")
        found.append(errors(case, program, directory / case.name))
        print(f"{case.name:8} ours {found[-1][0]:.2e}  transformers {found[-1][1]:.2e}  {case.about}",
              flush=True)
    ours, theirs = (statistics.fmean(column) for column in zip(*found))
    print(f"{n} networks in bf16, mean relative L2 of logits to float32: ours {ours:.2e}, "
          f"transformers {theirs:.2e}, ratio {ours / theirs:.2f}, limit {LIMIT}")
    return ours <= LIMIT * theirs
