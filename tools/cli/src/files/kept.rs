//! What a copy takes of files besides content, permissions and time.

use zerolane_files::{Attributes, Modes};

/// What becomes of permissions.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PermissionArgs {
    /// Change the permissions of the source on the way, as chmod does: ug+w,o-rwx or D755,F644 (directories, files)
    #[arg(long, value_name = "CHANGES")]
    chmod: Vec<Modes>,
    /// Leave permissions at the target as they are; new files get those of the source, less the umask
    #[arg(long)]
    pub(crate) no_perms: bool,
}

impl PermissionArgs {
    /// The changes, one after the other.
    pub(crate) fn modes(&self) -> Modes {
        let all = self.chmod.iter().cloned();
        all.fold(Modes::default(), Modes::and)
    }
}

/// Options that `cp` and `sync` have in common.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct KeptArgs {
    /// Copy what symbolic links of the source lead to, in place of the links
    #[arg(short = 'L', long)]
    pub(crate) copy_links: bool,
    /// Keep user and group, by their numbers, where the end that writes may: as root
    #[arg(long)]
    owner: bool,
    /// Keep extended attributes: user.*, and as root others, too
    #[arg(short = 'X', long)]
    xattrs: bool,
    /// Keep POSIX access control lists, users and groups by their numbers
    #[arg(short = 'A', long, conflicts_with = "no_perms")]
    acls: bool,
    /// Make hard links of what are hard links of each other in the source
    #[arg(short = 'H', long)]
    hard_links: bool,
}

impl KeptArgs {
    pub(crate) fn attributes(&self) -> Attributes {
        Attributes {
            owner: self.owner,
            xattrs: self.xattrs,
            acls: self.acls,
            hard_links: self.hard_links,
        }
    }
}
