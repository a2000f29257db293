"""What there is nothing to compare with is not collected."""

from tests.engine_sim.real_vllm import IS_WANTED

if not IS_WANTED:
    collect_ignore = ["test_vllm_same_answers.py"]
