from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from local_backend.gguf.format import GGMLType
from tests.native.conftest import MakeKernels
from tests.native.random_weights import random_weight


def test_callers_from_several_threads_do_not_disturb_each_other(make_kernels: MakeKernels) -> None:
    kernels = make_kernels(threads=3)
    weights = [random_weight(GGMLType.Q4_1, (200, 64 * width), seed=width) for width in (1, 2, 3, 5)]
    inputs = [np.random.default_rng(7).normal(size=(9, w.columns)).astype(np.float32) for w in weights]
    alone = [kernels.multiply(w, x).tobytes() for w, x in zip(weights, inputs, strict=True)]

    with ThreadPoolExecutor(4) as callers:
        for _ in range(20):
            together = list(callers.map(kernels.multiply, weights, inputs))

            assert [result.tobytes() for result in together] == alone


def test_idle_workers_use_no_processor_time(make_kernels: MakeKernels) -> None:
    kernels = make_kernels(threads=4)
    kernels.multiply(random_weight(GGMLType.Q8_0, (64, 64), seed=1), np.ones((1, 64), np.float32))
    time.sleep(0.05)  # longer than they spin
    before = time.process_time()

    time.sleep(0.3)  # the idle time that is measured

    assert time.process_time() - before < 0.05


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this machine has no fork")
def test_a_forked_child_computes_on_its_own_thread(make_kernels: MakeKernels) -> None:
    kernels = make_kernels(threads=3)
    weight = random_weight(GGMLType.Q4_0, (70, 64), seed=2)
    inputs = np.ones((2, 64), np.float32)
    wanted = kernels.multiply(weight, inputs).tobytes()

    child = os.fork()
    if child == 0:  # leaves without the test runner's clean-up
        os._exit(0 if kernels.multiply(weight, inputs).tobytes() == wanted else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
