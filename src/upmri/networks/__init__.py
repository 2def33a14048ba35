"""Networks: the U-Net of the paper, and the unrolled reconstruction around it."""
