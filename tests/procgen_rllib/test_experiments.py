"""Experiment files: the existing ones can be planned, and faulty ones are rejected."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.rllib, pytest.mark.filterwarnings("default")]

experiments = pytest.importorskip(
    "battlesnake_rl.procgen.procgen_experiments", reason="needs the extra rllib"
)


Plan = Callable[..., Any]


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Plan:
    """Return a function from arguments to the planned run."""
    from battlesnake_rl.procgen.procgen_launcher import ProcgenLauncher

    def make(*arguments: str) -> Any:
        planned: list[Any] = []

        def keep(self: ProcgenLauncher, run: Any, *rest: Any) -> int:
            planned.append(run)
            return 0

        monkeypatch.setattr(ProcgenLauncher, "_run_training", keep)
        assert ProcgenLauncher.train_main([*arguments, "--runs-dir", str(tmp_path)]) == 0
        return planned[0]

    return make


def test_names() -> None:
    assert {"impala-baseline", "homogeneous-cpu", "homogeneous-gpu", "heterogeneous"} <= set(
        experiments.experiment_names()
    )


@pytest.mark.parametrize("name", experiments.experiment_names())
def test_all_experiments_can_be_planned(
    name: str, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on the machines for which the experiment is made.
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    run = plan("--experiment", name)
    assert run.config.env_config["frame_stack"] == (4 if name == "frame-stack" else 1)
    assert run.env_steps or run.minutes == 60
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
    from battlesnake_rl.procgen.procgen_ppo import ProcgenPPOConfig

    begun = ProcgenPPOConfig()
    said = experiments.load_experiment("impala-baseline")
    for name, value in said.items():
        if name.startswith("rl.training.config."):
            field = name.removeprefix("rl.training.config.")
            assert getattr(begun, "lambda_" if field == "lambda" else field) == value, name


def test_the_test_is_on_all_levels_unless_told_otherwise(plan: Plan) -> None:
    from battlesnake_rl.procgen import generalization

    config = plan("-f", "easy-200", "--env-name", "maze").config
    trained, tested = config.env_config, generalization.test_env_config(config)
    assert (trained["num_levels"], tested["num_levels"]) == (200, 0)
    assert tested == trained | {"num_levels": 0}
    dotted = "--rl.training.config.evaluation_config.env_config."
    flags = [f"{dotted}num_levels", "50", f"{dotted}start_level", "200"]
    tested = generalization.test_env_config(plan("-f", "hard-500", *flags).config)
    assert (tested["num_levels"], tested["start_level"]) == (50, 200)
    assert tested["distribution_mode"] == "hard"


def test_flags_go_over_the_file(plan: Plan) -> None:
    run = plan("-f", "starter-example", "--minutes", "2", "--rl.training.config.lr", "0.5")
    assert (run.minutes, run.env_steps, run.config.lr) == (2, None, 0.5)


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
    assert (run.minutes, run.num_iters, run.config.num_env_runners) == (1.5, 7, 1)
    assert run.job.name == "mine-maze"


def test_all_faults_are_named_at_once(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "bad:\n  run: PPO\n  color: red\n  stop: {episodes: 1}\n  config:\n"
        "    model: {use_lstm: true}\n",
    )
    with pytest.raises(experiments.ExperimentError) as caught:
        experiments.load_experiment(path)
    message = str(caught.value)
    assert re.search(r"color.* env, run, stop.* config", message)
    assert re.search(r"stop\.episodes.* timesteps_total", message)
    assert "config.model: use custom_model, custom_options" in message
    path = write(tmp_path, "bad:\n  run: PPO\n  config: {model: {custom_preprocessor: Mine}}\n")
    with pytest.raises(experiments.ExperimentError, match="custom_preprocessor"):
        experiments.load_experiment(path)


def test_old_names_are_refused_with_those_of_today(tmp_path: Path) -> None:
    """From the starter kit's ``experiments/impala-baseline.yaml``."""
    path = write(
        tmp_path,
        "kit:\n  run: PPO\n  checkpoint_freq: 100\n"
        "  config: {num_sgd_iter: 3, sgd_minibatch_size: 2048, train_batch_size: 16384}\n",
    )
    with pytest.raises(experiments.ExperimentError) as caught:
        experiments.load_experiment(path)
    message = str(caught.value)
    assert re.search(r"checkpoint_freq.* env.* run.* stop.* config", message)
    assert "config.num_sgd_iter: use num_epochs" in message
    assert "config.sgd_minibatch_size: use minibatch_size" in message
    assert "config.train_batch_size: use train_batch_size_per_learner" in message


def test_parts_of_gpus_are_counted_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from battlesnake_rl.procgen.procgen_launcher import ProcgenLauncher

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
    ],
)
def test_files_that_are_no_experiments(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(experiments.ExperimentError, match=message):
        experiments.load_experiment(write(tmp_path, text))


def test_missing_experiments(tmp_path: Path) -> None:
    with pytest.raises(experiments.ExperimentError, match="impala-baseline"):
        experiments.load_experiment("baseline")
    with pytest.raises(experiments.ExperimentError, match="experiment"):
        experiments.load_experiment(str(tmp_path / "none.yaml"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-f", "one-hour", "--num-env-runners", "100"), r"num_env_runners.* 0"),
        (
            ("--rl.training.config.num_gpus_per_learner", "3"),
            "3 GPUs",
        ),
        (("--env", "procgen"), "'procgen'"),
        (("--env-name", "pong"), "env_name"),
        (("--hyperparameter", 'env_config={"levels": 3}'), r"env_config.* 'levels'"),
        (("--hyperparameter", 'custom_options={"depth": 3}'), "'depth'"),
        (
            ("--rl.training.config.model.dim", "42"),
            r"rl\.training\.config\.model\.dim.* custom_options",
        ),
        (
            ("--hyperparameter", 'rl.training.config.model_config={"width": 64}'),
            r"rl\.training\.config\.model_config.* custom_options",
        ),
        (("--rl.training.config.gama", "1"), r"rl\.training\.config\.gamma"),
        (
            ("-f", "easy-200", "--rl.training.config.evaluation_duration_unit", "timesteps"),
            r"evaluation_duration_unit.* 'timesteps'.* 'episodes'",
        ),
        (
            ("-f", "easy-200", "--rl.training.config.evaluation_config", '{"horizon": 3}'),
            "evaluation_config's",
        ),
    ],
)
def test_impossible_plans(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from battlesnake_rl.procgen.procgen_launcher import ProcgenLauncher

    assert ProcgenLauncher.train_main(list(arguments)) == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_machine_without_the_games(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    from battlesnake_rl.procgen.procgen_launcher import ProcgenLauncher

    monkeypatch.setitem(sys.modules, "envpool", None)
    assert ProcgenLauncher.train_main(["--runs-dir", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert re.search(r"envpool.* procgen", message)
    assert "deployment/training/Dockerfile" in message
