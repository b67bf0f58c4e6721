//! The entry point: hands the arguments to [`curtsy::cli`] and returns its exit code.

use std::process::ExitCode;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    curtsy::cli::main()
}
