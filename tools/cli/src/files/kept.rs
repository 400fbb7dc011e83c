//! Defines the options for file attributes that a copy keeps or changes.

use zerolane_files::{Attributes, Modes};

/// Options for permissions.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PermissionArgs {
    /// Change the permissions on the way, as chmod does: ug+w,o-rwx or D755,F644 (directories, files)
    #[arg(long, value_name = "CHANGES")]
    chmod: Vec<Modes>,
    /// Leave permissions at the target as they are; new files get those of the source, less the umask
    #[arg(long)]
    pub(crate) no_perms: bool,
}

impl PermissionArgs {
    /// The changes, in order.
    pub(crate) fn modes(&self) -> Modes {
        let all = self.chmod.iter().cloned();
        all.fold(Modes::default(), Modes::and)
    }
}

/// Options that `cp` and `sync` share.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct KeptArgs {
    /// Copy the files that symbolic links of the source point to, instead of the links
    #[arg(short = 'L', long)]
    pub(crate) copy_links: bool,
    /// Keep user and group, by number, where the writing end may: as root
    #[arg(long)]
    owner: bool,
    /// Keep extended attributes: user.*, and as root others, too
    #[arg(short = 'X', long)]
    xattrs: bool,
    /// Keep POSIX access control lists, users and groups by number
    #[arg(short = 'A', long, conflicts_with = "no_perms")]
    acls: bool,
    /// Keep hard links between files of the source
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
