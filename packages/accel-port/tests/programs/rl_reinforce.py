# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Policy gradient on a corridor: left or right, a reward at the right end."""

import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions.categorical import Categorical

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--torch-deterministic", type=bool, default=True)
parser.add_argument(
    "--cuda",
    type=lambda x: x.lower() == "true",
    default=True,
    nargs="?",
    const=True,
    help="if toggled, cuda will be enabled by default",
)
args = parser.parse_args()

# TRY NOT TO MODIFY: seeding
random.seed(args.seed)
np.random.seed(args.seed)
torch.manual_seed(args.seed)
torch.cuda.manual_seed_all(args.seed)
torch.backends.cudnn.deterministic = args.torch_deterministic

device = torch.device("cuda" if torch.cuda.is_available() and args.cuda else "cpu")


class Corridor:
    length = 5

    def reset(self):
        self.at = 2
        return self.observe()

    def observe(self):
        return np.eye(self.length, dtype=np.float32)[self.at]

    def step(self, action):
        self.at = max(0, min(self.length - 1, self.at + (1 if action == 1 else -1)))
        done = self.at in (0, self.length - 1)
        return self.observe(), float(self.at == self.length - 1), done


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))

    def get_action(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy()


env = Corridor()
agent = Agent().to(device)
optimizer = optim.Adam(agent.parameters(), lr=0.05, eps=1e-5)

obs = torch.zeros((16, 5)).to(device)
rewards = torch.zeros(16).to(device)

for update in range(4):
    next_obs = torch.Tensor(env.reset()).to(device)
    logprobs = []
    for step in range(16):
        obs[step] = next_obs
        action, logprob, entropy = agent.get_action(next_obs)
        logprobs.append(logprob)
        next_obs, reward, done = env.step(action.cpu().numpy())
        rewards[step] = torch.tensor(reward).to(device).view(-1)[0]
        if done:
            next_obs = env.reset()
        next_obs = torch.Tensor(next_obs).to(device)
    loss = -(torch.stack(logprobs) * (rewards - rewards.mean())).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
    optimizer.step()
    print(f"update={update}, loss={loss.item():.6f}, return={rewards.sum().item():.1f}")
