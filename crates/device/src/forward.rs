//! Forwards the methods of a device to another device: the macro for wrappers, and the trait for
//! pointers to a device.

use std::io;
use std::sync::Arc;

use crate::device::Device;
use crate::queue::Queue;

/// Defines methods of [`Device`](crate::Device) that call the same method of another device.
///
/// `this` names the device inside the expression after the arrow, which is the device that it
/// wraps. The methods without a default are required, so a wrapper that neither defines nor
/// forwards one does not compile. The macro does not forward `native_queue`: the requests of the
/// inner device's queue would bypass the wrapper. `network` stands for the methods that have a
/// default and concern devices of a network.
///
/// # Example
/// ```
/// # use parext4_device::{Device, MemDevice, forward_device};
/// # use std::io::{self, IoSlice};
/// /// A device that loses all writes.
/// #[derive(Debug)]
/// struct Lossy(MemDevice);
///
/// impl Device for Lossy {
///     forward_device!(this => this.0; size, sector_size, read_only, network, read_at, flush, discard);
///
///     fn write_at(&self, _offset: u64, _bufs: &[IoSlice<'_>]) -> io::Result<()> { Ok(()) }
/// }
/// # assert_eq!(Lossy(MemDevice::new(4096)).size(), 4096);
/// ```
#[macro_export]
macro_rules! forward_device {
    ($this:ident => $inner:expr; $($method:ident),+ $(,)?) => {
        $($crate::forward_device!(@$method $this $inner);)+
    };
    (@size $this:ident $inner:expr) => {
        fn size(&self) -> u64 {
            let $this = self;
            $crate::Device::size(&$inner)
        }
    };
    (@sector_size $this:ident $inner:expr) => {
        fn sector_size(&self) -> u32 {
            let $this = self;
            $crate::Device::sector_size(&$inner)
        }
    };
    (@read_only $this:ident $inner:expr) => {
        fn read_only(&self) -> bool {
            let $this = self;
            $crate::Device::read_only(&$inner)
        }
    };
    (@read_at $this:ident $inner:expr) => {
        fn read_at(&self, offset: u64, bufs: &mut [::std::io::IoSliceMut<'_>]) -> ::std::io::Result<()> {
            let $this = self;
            $crate::Device::read_at(&$inner, offset, bufs)
        }
    };
    (@write_at $this:ident $inner:expr) => {
        fn write_at(&self, offset: u64, bufs: &[::std::io::IoSlice<'_>]) -> ::std::io::Result<()> {
            let $this = self;
            $crate::Device::write_at(&$inner, offset, bufs)
        }
    };
    (@flush $this:ident $inner:expr) => {
        fn flush(&self) -> ::std::io::Result<()> {
            let $this = self;
            $crate::Device::flush(&$inner)
        }
    };
    (@discard $this:ident $inner:expr) => {
        fn discard(&self, offset: u64, len: u64) -> ::std::io::Result<()> {
            let $this = self;
            $crate::Device::discard(&$inner, offset, len)
        }
    };
    (@network $this:ident $inner:expr) => {
        $crate::forward_device!(@sharing $this $inner);
        $crate::forward_device!(@has_fenced $this $inner);
        $crate::forward_device!(@object_size $this $inner);
        $crate::forward_device!(@lock_owner $this $inner);
        $crate::forward_device!(@check_fence $this $inner);
        $crate::forward_device!(@guard_writes $this $inner);
        $crate::forward_device!(@counters $this $inner);
    };
    (@counters $this:ident $inner:expr) => {
        fn counters(&self) -> ::std::vec::Vec<$crate::Counter> {
            let $this = self;
            $crate::Device::counters(&$inner)
        }
    };
    (@sharing $this:ident $inner:expr) => {
        fn sharing(&self) -> $crate::Sharing {
            let $this = self;
            $crate::Device::sharing(&$inner)
        }
    };
    (@has_fenced $this:ident $inner:expr) => {
        fn has_fenced(&self) -> bool {
            let $this = self;
            $crate::Device::has_fenced(&$inner)
        }
    };
    (@object_size $this:ident $inner:expr) => {
        fn object_size(&self) -> ::std::option::Option<::std::num::NonZeroU64> {
            let $this = self;
            $crate::Device::object_size(&$inner)
        }
    };
    (@check_fence $this:ident $inner:expr) => {
        fn check_fence(&self) -> ::std::io::Result<()> {
            let $this = self;
            $crate::Device::check_fence(&$inner)
        }
    };
    (@lock_owner $this:ident $inner:expr) => {
        fn lock_owner(&self) -> ::std::io::Result<::std::option::Option<$crate::LockOwner>> {
            let $this = self;
            $crate::Device::lock_owner(&$inner)
        }
    };
    (@guard_writes $this:ident $inner:expr) => {
        fn guard_writes(&self, guard: ::std::sync::Arc<dyn $crate::WriteGuard>) {
            let $this = self;
            $crate::Device::guard_writes(&$inner, guard);
        }
    };
}

/// Forwards the blocking calls. Threads serve its queues, because a native queue keeps its device
/// alive, and a reference cannot.
impl<T: Device + ?Sized> Device for &T {
    forward_device!(this => **this; size, sector_size, read_only, read_at, write_at, flush, discard, network);
}

impl<T: Device + ?Sized> Device for Arc<T> {
    forward_device!(this => **this; size, sector_size, read_only, read_at, write_at, flush, discard, network);

    fn native_queue(self: Arc<Self>, depth: u32) -> io::Result<Option<Box<dyn Queue>>> {
        T::native_queue(Arc::clone(&*self), depth)
    }
}
