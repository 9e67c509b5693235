"""What settings of RLlib were called years ago, as published examples still spell them."""

RENAMED = {
    "num_sgd_iter": "num_epochs",
    "sgd_minibatch_size": "minibatch_size",
    "train_batch_size": "train_batch_size_per_learner",
    "sample_batch_size": "rollout_fragment_length",
    "num_workers": "num_env_runners",
    "num_envs_per_worker": "num_envs_per_env_runner",
    "num_gpus": "num_gpus_per_learner",
    "num_gpus_per_worker": "num_gpus_per_env_runner",
    "num_cpus_per_worker": "num_cpus_per_env_runner",
    "num_cpus_for_driver": "num_cpus_for_main_process",
    "ignore_worker_failures": "restart_failed_env_runners",
    "timesteps_per_iteration": "min_sample_timesteps_per_iteration",
    "lambda_": "lambda",
}
"""Settings that have another name today and mean the same."""
