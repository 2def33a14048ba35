"""Networks: the ADM U-Net for images, and unrolled reconstructions that alternate small CNNs with data consistency."""
