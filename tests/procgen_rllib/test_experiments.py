"""Experiment files: the existing ones can be planned, and faulty ones are rejected."""

import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from battlesnake_rl.procgen import procgen_episodes
from battlesnake_rl.procgen import procgen_experiments as experiments
from battlesnake_rl.procgen.kit.kit_settings import translate_hyperparameters
from battlesnake_rl.procgen.procgen_launcher import ProcgenLauncher
from battlesnake_rl.procgen.procgen_ppo import ProcgenPPOConfig
from sagemaker_rl.runs.launch import Launch

pytestmark = pytest.mark.filterwarnings("default")

Plan = Callable[..., Any]


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Plan:
    """Return a function from arguments to the planned run."""

    def make(*arguments: str) -> Any:
        planned: list[Any] = []

        def keep(self: Launch, run: Any) -> int:
            planned.append(run)
            return 0

        monkeypatch.setattr(Launch, "_run_training", keep)
        assert ProcgenLauncher.train_main([*arguments, "--runs-dir", str(tmp_path)]) == 0
        return planned[0]

    return make


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in experiments.EXPERIMENT_DIR.glob("*.yaml"))
)
def test_all_experiments_can_be_planned(
    name: str, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on the machines for which the experiment is made.
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    run = plan("--experiment", name)
    assert run.config.env_config["frame_stack"] == (4 if name == "frame-stack" else 1)
    assert run.stop_conditions["env_steps"] or run.stop_conditions["minutes"] == 60
    # RLlib's env runners need the vectorized environment; this project's always use it.
    batch = run.config.gym_env_vectorize_mode == "vector_entry_point"
    assert batch == (run.config.algo_class.__name__ != "ProcgenPPO")
    assert run.job.name == f"{name}-{run.config.env_config['env_name']}"


@pytest.mark.parametrize(("cpus", "runners"), [(2, 0), (8, 4), (16, 8), (48, 32)])
def test_the_published_baseline(
    plan: Plan, cpus: int, runners: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cpus)))
    config = plan("--env-name", "bigfish").config
    assert config.num_env_runners == runners
    assert config.num_envs_per_env_runner == 64 // max(runners, 1)
    assert config.algo_class.__name__ == "ProcgenPPO"
    assert config.rl_module_spec.model_config == {"bfloat16": False}
    assert config.env_config["env_name"] == "bigfish"
    assert (config.gamma, config.lambda_, config.lr) == (0.999, 0.95, 5e-4)
    assert (config.num_epochs, config.minibatch_size) == (3, 2048)
    assert (config.clip_param, config.entropy_coeff) == (0.2, 0.01)
    assert (config.vf_clip_param, config.vf_loss_coeff, config.grad_clip) == (0.2, 0.25, 0.5)
    assert (config.reward_clip, config.adam_epsilon) == (10.0, 1e-5)
    assert config.get_rollout_fragment_length() == 256


def test_the_file_of_the_baseline_says_what_the_algorithm_begins_with(plan: Plan) -> None:
    begun = ProcgenPPOConfig()
    said, messages = experiments.load_experiment("impala-baseline")
    assert not messages
    for name, value in said.items():
        if name.startswith("rl.training.config."):
            field = name.removeprefix("rl.training.config.")
            assert getattr(begun, "lambda_" if field == "lambda" else field) == value, name


def test_the_test_is_on_all_levels_unless_told_otherwise(plan: Plan) -> None:
    config = plan("-f", "easy-200", "--env-name", "maze").config
    trained, tested = config.env_config, procgen_episodes._test_env_config(config)
    assert (trained["num_levels"], tested["num_levels"]) == (200, 0)
    assert tested == trained | {"num_levels": 0}
    dotted = "--rl.training.config.evaluation_config.env_config."
    flags = [f"{dotted}num_levels", "50", f"{dotted}start_level", "200"]
    tested = procgen_episodes._test_env_config(plan("-f", "hard-500", *flags).config)
    assert (tested["num_levels"], tested["start_level"]) == (50, 200)
    assert tested["distribution_mode"] == "hard"


def test_flags_go_over_the_file(plan: Plan) -> None:
    games = plan("-f", "hard-500", "--hyperparameter", 'env_config={"num_levels": 9}').config
    assert games.env_config["num_levels"] == 9
    assert games.env_config["distribution_mode"] == "hard"
    options = plan("-f", "easy-small", "--custom-options", '{"blocks": 2}').config
    network = {"patch": 4, "channels": [32, 64], "blocks": 2}
    assert options.rl_module_spec.model_config == network
    other = plan("-f", "starter-example", "--custom-model", "impala_cnn").config
    assert not other.rl_module_spec.model_config
    for stop in ("minutes", "driver_cpu_minutes"):
        run = plan("-f", "starter-example", f"--{stop}", "2", "--rl.training.config.lr", "0.5")
        stops = run.stop_conditions
        assert (stops[stop], stops["env_steps"], run.config.lr) == (2, None, 0.5)


def test_another_algorithm_has_its_own_settings(plan: Plan) -> None:
    for name in ("IMPALA", "PPO", "random_agent"):
        config = plan("--run", name, "--rl.training.config.gamma", "0.9").config
        plain = type(config)()
        assert (config.lr, config.grad_clip, config.gamma) == (plain.lr, plain.grad_clip, 0.9)
        assert (config._rl_module_spec is None) == (name == "random_agent")
    config = plan("-f", "easy-200", "--run", "IMPALA").config
    assert (config.evaluation_interval, config.env_config["num_levels"]) == (10, 200)


def write(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)


def test_a_file_by_its_path(plan: Plan, tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "mine:\n  run: IMPALA\n  stop: {time_total_s: 90, training_iteration: 7}\n"
        "  config: {env_config: {env_name: maze}, num_env_runners: 1, num_learners: 0}\n",
    )
    run = plan("-f", path)
    assert run.config.algo_class.__name__ == "IMPALA"
    assert (
        run.stop_conditions["minutes"],
        run.stop_conditions["num_iters"],
        run.config.num_env_runners,
    ) == (1.5, 7, 1)
    assert run.job.name == "mine-maze"


def test_all_faults_are_named_at_once(tmp_path: Path) -> None:
    path = write(
        tmp_path, "bad:\n  run: PPO\n  color: red\n  stop: {episodes: 1}\n  config:\n    model: 3\n"
    )
    with pytest.raises(ValueError, match="cannot be run") as caught:
        experiments.load_experiment(path)
    message = str(caught.value)
    assert re.search(r"color.* env, run, stop.* config", message)
    assert re.search(r"stop\.episodes.* timesteps_total", message)
    assert "config.model: must be a mapping" in message


KIT = (Path(__file__).parents[1] / "data" / "procgen" / "kit.yaml").read_text()
"""Every setting of the competition kit's experiment files; the network is to replace MODEL."""

KIT_VISION = """{custom_model: my_vision_network, custom_options: {},
      conv_filters: [[16, [3, 3], 3], [16, [3, 3], 1]], conv_activation: relu,
      fcnet_activation: tanh, fcnet_hiddens: [128, 128], no_final_linear: false,
      vf_share_layers: true, use_lstm: false, max_seq_len: 20, lstm_cell_size: 256,
      lstm_use_prev_action_reward: false, state_shape: null}"""


@pytest.mark.parametrize(
    ("model", "network"),
    [("{custom_model: impala_cnn_tf, custom_options: {}}", "ImpalaModule"),
     (KIT_VISION, "MyVisionNetwork")],
)  # fmt: skip
def test_files_of_the_kit_are_translated(
    plan: Plan, tmp_path: Path, model: str, network: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = plan("-f", write(tmp_path, KIT.replace("MODEL", model)))
    config = run.config
    assert config.algo_class.__name__ == "PPO"
    assert config.rl_module_spec.module_class.__name__ == network
    assert (run.stop_conditions["env_steps"], config.env_config["env_name"]) == (8000, "bigfish")
    assert (config.num_epochs, config.minibatch_size) == (3, 128)
    assert (config.train_batch_size_per_learner, config.num_envs_per_env_runner) == (512, 12)
    assert (config.vf_clip_param, config.use_kl_loss, config.explore) == (math.inf, False, True)
    if network == "MyVisionNetwork":
        assert config.rl_module_spec.model_config["fcnet_hiddens"] == [128, 128]
    # There is one line for each change, and none for a setting that keeps its name.
    out = capsys.readouterr()
    lines = (out.out + out.err).splitlines()
    for name in ("num_sgd_iter", "checkpoint_freq", "horizon", "num_workers", "vf_clip_param"):
        (line,) = [line for line in lines if re.search(rf"\b{name}\b", line)]
        assert re.search("left out|now called|is .inf", line)
    assert "observation_filter is repeated: the last value is used" in lines
    assert "rl.training.config.num_gpus_per_worker 0 is left out" in out.out + out.err
    assert not [line for line in lines if re.search(r"\b(gamma|clip_param|grad_clip)\b", line)]


def test_the_kits_random_agent(plan: Plan, tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "kit:\n  run: RandomPolicy\n  stop: {timesteps_total: 300}\n  checkpoint_freq: 1\n"
        "  config:\n    env_config: {env_name: coinrun}\n"
        "    model: {custom_preprocessor: MyPreprocessor}\n",
    )
    assert plan("-f", path).config.algo_class.__name__ == "RandomAgent"


def test_a_users_file_replaces_the_kits_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"rl.training.config.model.custom_model": "impala_cnn_torch"}
    assert translate_hyperparameters(given)[0] == {"custom_model": "impala_cnn"}
    Path("models").mkdir()
    Path("models/impala_cnn_torch.py").touch()
    assert translate_hyperparameters(given)[0] == {"custom_model": "impala_cnn_torch"}


def test_published_hyperparameters_are_taken(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls of the two articles."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    prefix = "--rl.training.config."
    words = (f"{prefix}num_workers", "4", f"{prefix}num_gpus", "0", f"{prefix}env_config.env_name",
             "maze", "--rl.training.upload_dir", "s3://bucket/key")  # fmt: skip
    run = plan(*words, "--num-iters", "5000")
    assert (run.config.num_env_runners, run.config.num_gpus_per_learner) == (4, 0)
    assert run.job.name == "impala-baseline-maze"
    assert plan(f"{prefix}num_cpus", "3", "--num-iters", "1").config.num_env_runners == 2


def test_parts_of_gpus_are_counted_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    # 0.3 and three times 0.55 are less than two, but no two of the three fit on one GPU.
    settings = {"num_gpus_per_learner": 0.3, "num_gpus_per_env_runner": 0.55}
    words = ["-f", "one-hour"] + [
        f"--rl.training.config.{name}={value}" for name, value in settings.items()
    ]
    words += ["--num-env-runners", "3", "--runs-dir", str(tmp_path)]
    assert ProcgenLauncher.train_main(words) == 2
    assert re.search(r"3 GPUs.* 2.* GPUs", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: {}\nb: {}\n", "experiment"),
        ("a: [\n", "YAML"),
        ("a:\n  config: 3\n", "config"),
        ("a: 1\n", r"env.* run.* stop.* config"),
        ("a: {config: {horizon: 100}}", r"horizon cannot be 100: .*; leave it out"),
        ("a: {config: {model: {use_lstm: true}}}", "use_lstm cannot be True"),
        (
            "a: {config: {model: {custom_preprocessor: Mine}}}",
            r"custom_preprocessor cannot be 'Mine'.*forward",
        ),
        ("a: {config: {num_epochs: 2, num_sgd_iter: 3}}", "num_sgd_iter and .*num_epochs set the"),
    ],
)
def test_files_that_are_no_experiments(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        experiments.load_experiment(write(tmp_path, text))


def test_missing_experiments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="impala-baseline"):
        experiments.load_experiment("baseline")
    with pytest.raises(ValueError, match="experiment"):
        experiments.load_experiment(str(tmp_path / "none.yaml"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-f", "one-hour", "--num-env-runners", "100"), r"--num-env-runners.* 0"),
        (("--rl.training.config.num_gpus_per_learner", "3"), "3 GPUs"),
    ],
)
def test_a_machine_that_is_too_small(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ProcgenLauncher.train_main(list(arguments)) == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_machine_without_the_games(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:

    monkeypatch.setitem(sys.modules, "envpool", None)
    assert ProcgenLauncher.train_main(["--runs-dir", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert re.search(r"envpool.* procgen", message)
    assert "deployment/training/Dockerfile" in message
