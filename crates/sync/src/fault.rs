//! The macros of planted faults: guards that a model removes, to prove that it notices their
//! absence.
//!
//! Only builds with `--cfg shuttle` can plant a fault. In all other builds a check of a fault is
//! the constant `false`.

/// Declares the faults of a crate: an enum that can be compared and copied, and whose [`Debug`]
/// writes the name of the fault. Its documentation should describe the faulty behaviour.
///
/// The crate can ask `fault.is_planted()`, or enclose a guard in [`guarded!`](crate::guarded) and a
/// faulty step in [`when_planted!`](crate::when_planted). Under `--cfg shuttle`, there are also
/// `ALL`, the list of all faults, and the function `plant`, which removes the guard of a fault, or
/// of none, in the models that the calling thread runs. It applies to one thread of the system,
/// which runs all threads of a model.
#[macro_export]
macro_rules! planted_faults {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $Fault:ident { $($(#[$documentation:meta])* $name:ident,)+ }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visibility enum $Fault {
            $($(#[$documentation])* $name,)+
        }

        impl $Fault {
            /// All faults.
            #[cfg(shuttle)]
            $visibility const ALL: &[Self] = &[$(Self::$name,)+];

            /// Returns true if this fault is planted.
            #[cfg(shuttle)]
            pub(crate) fn is_planted(self) -> bool {
                PLANTED.get() == Some(self)
            }

            /// Returns false.
            #[cfg(not(shuttle))]
            pub(crate) const fn is_planted(self) -> bool {
                false
            }
        }

        #[cfg(shuttle)]
        ::std::thread_local! {
            static PLANTED: ::std::cell::Cell<Option<$Fault>> = const { ::std::cell::Cell::new(None) };
        }

        /// Plants a fault, or none, in the models that the calling thread runs from now on.
        #[cfg(shuttle)]
        $visibility fn plant(fault: Option<$Fault>) {
            PLANTED.set(fault);
        }
    };
}

/// Evaluates `$guard`. While `$fault` is planted, evaluates `$without` instead, or without one
/// yields the default of the type: nothing is done, `false`, `None` or 0.
#[macro_export]
macro_rules! guarded {
    ($fault:expr, $guard:expr $(,)?) => {
        $crate::guarded!($fault, $guard, ::core::default::Default::default())
    };
    ($fault:expr, $guard:expr, $without:expr $(,)?) => {
        if cfg!(shuttle) && $fault.is_planted() { $without } else { $guard }
    };
}

/// Executes `$step` only while `$fault` is planted.
#[macro_export]
macro_rules! when_planted {
    ($fault:expr, $step:expr $(,)?) => {
        if cfg!(shuttle) && $fault.is_planted() {
            $step;
        }
    };
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    planted_faults! {
        /// The guards of the test.
        enum Fault {
            /// The count stays.
            NotCounted,
            /// The count is too large.
            CountedTwice,
        }
    }

    #[test]
    fn guards_are_in_place() {
        let mut count = guarded!(Fault::NotCounted, 1);
        when_planted!(Fault::CountedTwice, count += 1);
        assert_eq!(count, 1);
        assert_eq!(guarded!(Fault::NotCounted, 1, 0), 1);
    }
}
