# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Greedy generation; the decoding step is captured into a CUDA graph if there is a GPU."""

import argparse

import torch
import torch.nn as nn


class Decoder(nn.Module):
    def __init__(self, vocab=16, width=12):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.mix = nn.Linear(2 * width, width)
        self.head = nn.Linear(width, vocab)

    def forward(self, token, state):
        state = torch.tanh(self.mix(torch.cat([self.embed(token), state], -1)))
        return self.head(state), state


class GraphedStep:
    def __init__(self, model, token, state):
        self.token, self.state = token.clone(), state.clone()
        s = torch.cuda.Stream()
        s.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(s):
            for _ in range(3):
                model(self.token, self.state)
        torch.cuda.current_stream().wait_stream(s)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.logits, self.out = model(self.token, self.state)

    def __call__(self, token, state):
        self.token.copy_(token)
        self.state.copy_(state)
        self.graph.replay()
        return self.logits.clone(), self.out.clone()


@torch.no_grad()
def generate(model, prompt, steps, use_graph):
    state = torch.zeros(1, 12, device=prompt.device)
    token = prompt
    step = GraphedStep(model, token, state) if use_graph else model
    tokens = []
    for _ in range(steps):
        logits, state = step(token, state)
        token = logits.argmax(-1)
        tokens.append(token.item())
    return tokens, logits.logsumexp(-1).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no_graph", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(9)
    model = Decoder().to(args.device).eval()
    use_graph = torch.cuda.is_available() and not args.no_graph
    prompt = torch.tensor([3], device=args.device)
    tokens, score = generate(model, prompt, 12, use_graph)
    print("tokens", tokens)
    print(f"score {score:.6f}")


if __name__ == "__main__":
    main()
