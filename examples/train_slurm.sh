#!/bin/bash
# Train on two nodes with four GPUs each. Output and cache must be in folders that both nodes share.
#   sbatch examples/train_slurm.sh mine.yaml
#SBATCH --job-name=upmri-train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --time=08:00:00
#SBATCH --signal=B:TERM@120
set -euo pipefail

config=${1:?usage: sbatch train_slurm.sh CONFIG.yaml}
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

# Slices are prepared once, by the cores of the first node; the training finds them in the cache.
srun --nodes=1 --ntasks=1 --nodelist="$first" upmri train "$config" --prepare --cluster local

# One launcher on each node; torchrun starts one process for each GPU. The port is that of the rendezvous.
srun torchrun --nnodes="$SLURM_NNODES" --nproc-per-node="$SLURM_GPUS_ON_NODE" \
    --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$first:29500" \
    -m upmri train "$config"
