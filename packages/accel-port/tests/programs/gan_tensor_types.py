# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.autograd import Variable

parser = argparse.ArgumentParser()
parser.add_argument("--n_epochs", type=int, default=2, help="number of epochs of training")
parser.add_argument("--latent_dim", type=int, default=5, help="dimensionality of the latent space")
opt = parser.parse_args()

cuda = bool(torch.cuda.is_available())

torch.manual_seed(0)
np.random.seed(0)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(opt.latent_dim, 12), nn.Tanh())

    def forward(self, z):
        return self.model(z)


# Loss function
adversarial_loss = torch.nn.BCELoss()

# Initialize generator and discriminator
generator = Generator()
discriminator = nn.Sequential(nn.Linear(12, 1), nn.Sigmoid())

if cuda:
    generator.cuda()
    discriminator.cuda()
    adversarial_loss.cuda()

images = [np.random.randn(8, 12).astype(np.float64) for _ in range(3)]

optimizer_G = torch.optim.Adam(generator.parameters(), lr=0.01)
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=0.01)

Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor

for _ in range(opt.n_epochs):
    for i, batch in enumerate(images):
        imgs = torch.from_numpy(batch)

        # Adversarial ground truths
        valid = Variable(Tensor(imgs.size(0), 1).fill_(1.0), requires_grad=False)
        fake = Variable(Tensor(imgs.size(0), 1).fill_(0.0), requires_grad=False)
        real_imgs = Variable(imgs.type(Tensor))

        optimizer_G.zero_grad()
        z = Variable(Tensor(np.random.normal(0, 1, (imgs.shape[0], opt.latent_dim))))
        gen_imgs = generator(z)
        g_loss = adversarial_loss(discriminator(gen_imgs), valid)
        g_loss.backward()
        optimizer_G.step()

        optimizer_D.zero_grad()
        d_loss = adversarial_loss(discriminator(real_imgs), valid)
        d_loss += adversarial_loss(discriminator(gen_imgs.detach()), fake)
        d_loss.backward()
        optimizer_D.step()

        print("[Batch %d] [D loss: %.6f] [G loss: %.6f]" % (i, d_loss.item(), g_loss.item()))
