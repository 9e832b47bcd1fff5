//! The engine's values in the terms of the FUSE protocol: attributes, error numbers, and the sender
//! of a request.

pub(crate) mod attr;
mod caller;
mod failure;

pub(crate) use caller::{CAP_FOWNER, CAP_FSETID, CAP_LINUX_IMMUTABLE, CAP_SYS_ADMIN, Caller};
pub(crate) use failure::{Failure, Outcome};
