"""Reinforcement learning: one update of PPO, DQN, SAC and their kin, written out in one file, as CleanRL writes them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical, Normal

from tests.real.case import Batch, Make, Work, looped

ROWS, SEEN, ACTIONS = 16, 5, 3


def mlp(first: int, last: int, middle: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    return nn.Sequential(nn.Linear(first, 32), middle(), nn.Linear(32, 32), middle(), nn.Linear(32, last))


def rollout() -> Batch:
    """What PPO keeps of an episode."""
    return {
        "obs": torch.randn(ROWS, SEEN),
        "actions": torch.randint(ACTIONS, (ROWS,)),
        "logprobs": -torch.rand(ROWS) - 0.5,
        "advantages": torch.randn(ROWS),
        "returns": torch.randn(ROWS),
        "values": torch.randn(ROWS),
    }


def moves() -> Batch:
    return rollout() | {"actions": torch.randn(ROWS, ACTIONS), "logprobs": -3 - torch.rand(ROWS)}


def transitions() -> Batch:
    """Rows of a replay buffer with discrete actions."""
    return {
        "obs": torch.randn(ROWS, SEEN),
        "next": torch.randn(ROWS, SEEN),
        "actions": torch.randint(ACTIONS, (ROWS, 1)),
        "rewards": torch.randn(ROWS),
        "dones": torch.randint(2, (ROWS,)).float(),
    }


def continuous() -> Batch:
    """Rows of a replay buffer with continuous actions; the noise of both policies comes with the batch."""
    return transitions() | {
        "actions": torch.rand(ROWS, ACTIONS) * 2 - 1,
        "noise": torch.randn(ROWS, ACTIONS),
        "next noise": torch.randn(ROWS, ACTIONS),
    }


def clipped_loss(ratio: torch.Tensor, advantages: torch.Tensor, epsilon: float = 0.2) -> torch.Tensor:
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    return torch.max(-advantages * ratio, -advantages * torch.clamp(ratio, 1 - epsilon, 1 + epsilon)).mean()


def value_loss(value: torch.Tensor, b: Batch, epsilon: float = 0.2) -> torch.Tensor:
    clipped = b["values"] + torch.clamp(value - b["values"], -epsilon, epsilon)
    return 0.5 * torch.max((value - b["returns"]) ** 2, (clipped - b["returns"]) ** 2).mean()


def ppo() -> Work:
    actor, critic = mlp(SEEN, ACTIONS, nn.Tanh), mlp(SEEN, 1, nn.Tanh)
    both = nn.ModuleDict({"actor": actor, "critic": critic})
    optimizer = torch.optim.Adam(both.parameters(), lr=2.5e-4, eps=1e-5)

    def body(b: Batch) -> torch.Tensor:
        policy = Categorical(logits=actor(b["obs"]))
        ratio = (policy.log_prob(b["actions"]) - b["logprobs"]).exp()
        loss = clipped_loss(ratio, b["advantages"]) + 0.5 * value_loss(critic(b["obs"]).flatten(), b)
        loss = loss - 0.01 * policy.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(both.parameters(), 0.5)
        optimizer.step()
        return loss

    return looped({"both": both}, rollout, body, optimizer)


def ppo_continuous() -> Work:
    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean, self.critic = mlp(SEEN, ACTIONS, nn.Tanh), mlp(SEEN, 1, nn.Tanh)
            self.log_std = nn.Parameter(torch.zeros(1, ACTIONS))

    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5)

    def body(b: Batch) -> torch.Tensor:
        mean = agent.mean(b["obs"])
        policy = Normal(mean, agent.log_std.expand_as(mean).exp())
        ratio = (policy.log_prob(b["actions"]).sum(1) - b["logprobs"]).exp()
        loss = clipped_loss(ratio, b["advantages"]) + 0.5 * value_loss(agent.critic(b["obs"]).flatten(), b)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        return loss

    return looped({"agent": agent}, moves, body, optimizer)


def dqn(double: bool) -> Make:
    def make() -> Work:
        online, target = mlp(SEEN, ACTIONS), mlp(SEEN, ACTIONS)
        target.load_state_dict(online.state_dict())
        optimizer = torch.optim.Adam(online.parameters(), lr=2.5e-4)

        def body(b: Batch) -> torch.Tensor:
            with torch.no_grad():
                after = target(b["next"])
                if double:
                    best = after.gather(1, online(b["next"]).argmax(1, keepdim=True)).squeeze(1)
                else:
                    best = after.max(dim=1).values
                wanted = b["rewards"] + 0.99 * best * (1 - b["dones"])
            loss = F.mse_loss(online(b["obs"]).gather(1, b["actions"]).squeeze(1), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for theirs, ours in zip(target.parameters(), online.parameters(), strict=True):
                theirs.data.copy_(0.05 * ours.data + 0.95 * theirs.data)
            return loss

        return looped({"online": online, "target": target}, transitions, body, optimizer)

    return make


def c51() -> Work:
    """Values as distributions over 11 atoms; the projection is CleanRL's, with `index_add_`."""
    atoms, low, high = 11, -5.0, 5.0
    support = torch.linspace(low, high, atoms)
    online, target = mlp(SEEN, ACTIONS * atoms), mlp(SEEN, ACTIONS * atoms)
    optimizer = torch.optim.Adam(online.parameters(), lr=2.5e-4, eps=0.01 / ROWS)

    def probabilities(net: nn.Module, obs: torch.Tensor) -> torch.Tensor:
        return net(obs).view(ROWS, ACTIONS, atoms).softmax(-1)

    def body(b: Batch) -> torch.Tensor:
        rows = torch.arange(ROWS)
        with torch.no_grad():
            after = probabilities(target, b["next"])
            best = after[rows, (after * support).sum(-1).argmax(1)]
            place = b["rewards"][:, None] + 0.99 * support * (1 - b["dones"][:, None])
            place = (place.clamp(low, high) - low) / ((high - low) / (atoms - 1))
            lower, upper = place.floor().clamp(0, atoms - 1), place.ceil().clamp(0, atoms - 1)
            below, above = (upper + (lower == upper).float() - place) * best, (place - lower) * best
            first = rows[:, None] * atoms
            wanted = torch.zeros(ROWS * atoms)
            wanted.index_add_(0, (first + lower.long()).flatten(), below.flatten())
            wanted.index_add_(0, (first + upper.long()).flatten(), above.flatten())
            wanted = wanted.view(ROWS, atoms)
        found = probabilities(online, b["obs"])[rows, b["actions"][:, 0]]
        loss = (-(wanted * found.clamp(1e-5, 1 - 1e-5).log()).sum(-1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return looped({"online": online, "target": target}, transitions, body, optimizer)


class Q(nn.Module):
    """The value of an action."""

    def __init__(self):
        super().__init__()
        self.net = mlp(SEEN + ACTIONS, 1)

    def forward(self, obs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return self.net(torch.cat([obs, actions], 1)).view(-1)


class Gaussian(nn.Module):
    """SAC's policy: a squashed normal, with the log probability of what it draws."""

    def __init__(self):
        super().__init__()
        self.trunk, self.mean, self.log_std = (
            nn.Linear(SEEN, 32),
            nn.Linear(32, ACTIONS),
            nn.Linear(32, ACTIONS),
        )

    def forward(self, obs: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.trunk(obs).relu()
        log_std = -5 + 0.5 * (2 + 5) * (torch.tanh(self.log_std(hidden)) + 1)
        mean, std = self.mean(hidden), log_std.exp()
        raw = mean + std * noise
        action = torch.tanh(raw)
        logprob = Normal(mean, std).log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)
        return action, logprob.sum(1)


def sac() -> Work:
    """Two critics, a policy, and the temperature: three optimizers in one body."""
    actor, one, two, one_target, two_target = Gaussian(), Q(), Q(), Q(), Q()
    log_alpha = nn.ParameterList([nn.Parameter(torch.zeros(1))])
    critics = torch.optim.Adam([*one.parameters(), *two.parameters()], lr=1e-3)
    policy = torch.optim.Adam(actor.parameters(), lr=3e-4)
    temperature = torch.optim.Adam(log_alpha.parameters(), lr=1e-3)

    def body(b: Batch) -> torch.Tensor:
        alpha = log_alpha[0].exp().detach()
        with torch.no_grad():
            action, logprob = actor(b["next"], b["next noise"])
            least = torch.min(one_target(b["next"], action), two_target(b["next"], action)) - alpha * logprob
            wanted = b["rewards"] + (1 - b["dones"]) * 0.99 * least
        critic_loss = F.mse_loss(one(b["obs"], b["actions"]), wanted) + F.mse_loss(
            two(b["obs"], b["actions"]), wanted
        )
        critics.zero_grad()
        critic_loss.backward()
        critics.step()
        action, logprob = actor(b["obs"], b["noise"])
        actor_loss = (alpha * logprob - torch.min(one(b["obs"], action), two(b["obs"], action))).mean()
        policy.zero_grad()
        actor_loss.backward()
        policy.step()
        alpha_loss = (-log_alpha[0].exp() * (logprob.detach() - ACTIONS)).mean()
        temperature.zero_grad()
        alpha_loss.backward()
        temperature.step()
        with torch.no_grad():
            for target, net in ((one_target, one), (two_target, two)):
                for theirs, ours in zip(target.parameters(), net.parameters(), strict=True):
                    theirs.mul_(0.995).add_(ours, alpha=0.005)
        return alpha_loss

    nets = {"actor": actor, "one": one, "two": two, "one_target": one_target, "two_target": two_target}
    return looped({**nets, "log_alpha": log_alpha}, continuous, body, critics, policy, temperature)


def td3() -> Work:
    actor = nn.Sequential(mlp(SEEN, ACTIONS), nn.Tanh())
    actor_target = nn.Sequential(mlp(SEEN, ACTIONS), nn.Tanh())
    critic, critic_target = Q(), Q()
    critics = torch.optim.Adam(critic.parameters(), lr=3e-4)
    policy = torch.optim.Adam(actor.parameters(), lr=3e-4)

    def body(b: Batch) -> torch.Tensor:
        with torch.no_grad():
            noise = (b["next noise"] * 0.2).clamp(-0.5, 0.5)
            action = (actor_target(b["next"]) + noise).clamp(-1, 1)
            wanted = b["rewards"] + (1 - b["dones"]) * 0.99 * critic_target(b["next"], action)
        critic_loss = F.mse_loss(critic(b["obs"], b["actions"]), wanted)
        critics.zero_grad()
        critic_loss.backward()
        critics.step()
        actor_loss = -critic(b["obs"], actor(b["obs"])).mean()
        policy.zero_grad()
        actor_loss.backward()
        policy.step()
        for theirs, ours in zip(critic_target.parameters(), critic.parameters(), strict=True):
            theirs.data.copy_(0.005 * ours.data + 0.995 * theirs.data)
        return actor_loss

    nets = {"actor": actor, "actor_target": actor_target, "critic": critic, "critic_target": critic_target}
    return looped(nets, continuous, body, critics, policy)


class Agent(nn.Module):
    """A policy that holds its optimizer and trains itself, as minimalRL's agents do."""

    def __init__(self):
        super().__init__()
        self.policy = mlp(SEEN, ACTIONS)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=2e-4)

    def train_net(self, b: Batch) -> torch.Tensor:
        chances = F.softmax(self.policy(b["obs"]), dim=1).gather(1, b["actions"])
        loss = (-chances.log().squeeze(1) * b["rewards"]).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def reinforce() -> Work:
    agent = Agent()
    return Work(agent, transitions, (agent.optimizer,), body=agent.train_net)


CASES: dict[str, Make] = {
    "PPO": ppo,
    "PPO, continuous": ppo_continuous,
    "DQN": dqn(double=False),
    "double DQN": dqn(double=True),
    "C51": c51,
    "SAC": sac,
    "TD3": td3,
    "REINFORCE": reinforce,
}
