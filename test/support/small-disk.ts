import { execFileSync } from 'node:child_process'
import { chmodSync, existsSync, mkdtempSync } from 'node:fs'
import { rm, statfs, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import type { FaultServer } from './fault-server'

/** A place for a data folder that can be filled to the brim and emptied again. */
export interface SmallDisk {
  readonly name: string
  /** What the server calls it. */
  readonly sqlstate: RegExp
  /** For `startFaultServer`; undefined where any place will do. */
  readonly parent: string | undefined
  /** From now on the server can write so many more bytes, or a few more, to the table's file. */
  fill(server: FaultServer, left: { readonly fileBytes: number; readonly moreBytes: number }): Promise<void>
  free(server: FaultServer): Promise<void>
}

interface MountedDisk extends SmallDisk {
  remove(): Promise<void>
}

const SIZE_MEGABYTES = 192
const HALF_PAGE_BYTES = 4_096

/**
 * A tmpfs with a file that takes the room. It needs the right to mount, which root has on a machine and in a privileged
 * container only: undefined elsewhere, and `limitedFiles` must do.
 */
export function mountTmpfs(): MountedDisk | undefined {
  const parent = mkdtempSync(path.join(tmpdir(), 'unique-text-disk-'))
  chmodSync(parent, 0o755)
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${SIZE_MEGABYTES}m,mode=755`, 'tmpfs', parent], {
      stdio: 'ignore',
    })
  } catch {
    return undefined
  }
  const ballast = path.join(parent, 'ballast')
  return {
    name: 'a tmpfs',
    sqlstate: /^53100$/,
    parent,
    fill: async (_, { moreBytes }) => {
      const { bavail, bsize } = await statfs(parent)
      await writeFile(ballast, Buffer.alloc(Math.max(0, bavail * bsize - moreBytes)))
    },
    free: async () => await rm(ballast, { force: true }),
    remove: async () => {
      execFileSync('umount', [parent])
      await rm(parent, { recursive: true, force: true })
    },
  }
}

/**
 * A limit on the size of files, set on every process of the server: the kernel refuses what goes beyond. It needs no
 * right that the server's user has not.
 */
export function limitedFiles(): SmallDisk {
  const limit = async (server: FaultServer, bytes: number | 'unlimited'): Promise<void> => {
    // The postmaster first, whose new children inherit it; one of the others may have ended meanwhile.
    for (const pid of [server.pid(), ...(await server.children())]) {
      try {
        // As the server's user, whom the kernel lets do it; and the soft limit only, so that it can be raised again.
        execFileSync('prlimit', ['--pid', String(pid), `--fsize=${bytes}:`], { ...server.user, stdio: 'ignore' })
      } catch (error) {
        if (existsSync(`/proc/${pid}`)) throw error
      }
    }
  }
  return {
    name: 'a limit on the size of files',
    // EFBIG, for which Postgres has no code of its own; a page of which only a part fits is 53100.
    sqlstate: /^(?:53100|XX000)$/,
    parent: undefined,
    fill: async (server, { fileBytes, moreBytes }) => await limit(server, fileBytes + moreBytes + HALF_PAGE_BYTES),
    free: async (server) => await limit(server, 'unlimited'),
  }
}
