//! What a copy takes of files besides content, permissions and time.

/// Options that `cp` and `sync` have in common.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct KeptArgs {
    /// Copy what symbolic links of the source lead to, in place of the links
    #[arg(short = 'L', long)]
    pub(crate) copy_links: bool,
}
