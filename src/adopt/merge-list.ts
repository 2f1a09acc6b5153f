import { type FileHandle, open } from 'node:fs/promises'
import path from 'node:path'
import { DeclarationError } from '../errors'

/** Lines of the list begin like this. */
const BEGINNING = '{"'

const LINE_FEED = 0x0a

const CHUNK_BYTES = 65_536

/**
 * The file that keeps what a merge deletes and changes, as lines of JSON. Before a transaction commits, its lines are on
 * the disk. An existing list is continued.
 */
export class MergeList {
  private constructor(private readonly file: FileHandle) {}

  /** @throws DeclarationError if the file cannot be opened, or is no list */
  static async open(name: string): Promise<MergeList> {
    let file: FileHandle | undefined
    try {
      file = await open(name, 'a+', 0o600)
      const stat = await file.stat()
      if (!stat.isFile()) throw new Error('it is not an ordinary file')
      if (stat.size === 0) await syncFolder(path.dirname(name))
      else await continueList(file, stat.size)
      return new MergeList(file)
    } catch (error) {
      await file?.close()
      const reason = error instanceof Error ? error.message : String(error)
      throw new DeclarationError(
        `The list "${name}" cannot be written: ${reason}. Name a new file, or the list of an earlier merge.`,
        { cause: error },
      )
    }
  }

  /** Returns once the lines are on the disk. */
  async keep(lines: readonly object[]): Promise<void> {
    await this.add(lines)
    await this.file.datasync()
  }

  async add(lines: readonly object[]): Promise<void> {
    await this.file.appendFile(lines.map((line) => `${JSON.stringify(line)}\n`).join(''))
  }

  async close(): Promise<void> {
    await this.file.close()
  }
}

/** A crash can leave half a line at the end. Its transaction has not committed, so the line is removed. */
async function continueList(file: FileHandle, size: number): Promise<void> {
  const { buffer } = await file.read(Buffer.alloc(CHUNK_BYTES), 0, BEGINNING.length, 0)
  if (!buffer.toString('latin1').startsWith(BEGINNING)) throw new Error('it holds something else')
  for (let end = size; end > 0;) {
    const from = Math.max(0, end - CHUNK_BYTES)
    await file.read(buffer, 0, end - from, from)
    const found = buffer.subarray(0, end - from).lastIndexOf(LINE_FEED)
    if (found !== -1) return await file.truncate(from + found + 1)
    end = from
  }
  await file.truncate(0)
}

/** The name of a new file is on the disk only then. Windows cannot do this. */
async function syncFolder(name: string): Promise<void> {
  if (process.platform === 'win32') return
  const folder = await open(name)
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}
