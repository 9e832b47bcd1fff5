//! The kernel's numbers: it counts what parext4 wrote, and parext4 what the kernel wrote.
