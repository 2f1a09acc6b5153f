import { fstatSync } from 'node:fs'
import { type FileHandle, open, stat } from 'node:fs/promises'
import { ListError, type Original } from './list'

const STDIN = 0
const LINE_FEED = Buffer.from('\n')

/**
 * Opens the file for the lines that an import refuses, and empties it.
 *
 * @param list the name of the list; `-` is standard input
 * @throws ListError if it is the list itself
 * @throws RefusedLinesError if it cannot be written
 */
export async function openRefused(name: string, list: string): Promise<RefusedLines> {
  let file: FileHandle | undefined
  try {
    // What stands in it goes only when it is known to be another file than the list.
    file = await open(name, 'a')
    const own = await file.stat()
    const read = list === '-' ? fstatSync(STDIN) : await stat(list)
    if (own.isFile() && own.dev === read.dev && own.ino === read.ino) {
      throw new ListError('--refused names the list itself. Name another file.')
    }
    if (own.isFile()) await file.truncate()
    return new RefusedLines(file)
  } catch (error) {
    await file?.close()
    if (error instanceof ListError) throw error
    throw unwritable(error)
  }
}

/** Writes those lines of a list to a file that are refused, as they came; each ends with LF. */
export class RefusedLines {
  /** How many refused lines were too long to be kept. */
  lost = 0
  private header: Original | undefined
  /** Lines that have no answer yet. */
  private waiting: (Original | undefined)[] = []

  constructor(private readonly file: FileHandle) {}

  /** Takes a line of the list. */
  came(line: Original | undefined): void {
    this.waiting.push(line)
  }

  /** Takes the records of a CSV list; the first one names the columns, and is written before the first that is refused. */
  afterHeader(): (record: Original | undefined) => void {
    let first = true
    return (record) => {
      if (first) this.header = record
      else this.came(record)
      first = false
    }
  }

  /**
   * Writes the refused ones among the next lines.
   *
   * @throws RefusedLinesError if the file cannot be written
   */
  async answered(areRefused: readonly boolean[]): Promise<void> {
    const parts: Original[] = []
    for (const [index, line] of this.waiting.splice(0, areRefused.length).entries()) {
      if (areRefused[index] !== true) continue
      if (line === undefined) this.lost += 1
      else parts.push(line)
    }
    if (parts.length === 0) return
    if (this.header !== undefined) parts.unshift(this.header)
    this.header = undefined
    const bytes = parts.flatMap((part) => [typeof part === 'string' ? Buffer.from(part) : part, LINE_FEED])
    try {
      await this.file.writeFile(Buffer.concat(bytes))
    } catch (error) {
      throw unwritable(error)
    }
  }

  async close(): Promise<void> {
    await this.file.close()
  }
}

/** The file of the refused lines cannot be written. */
class RefusedLinesError extends Error {
  override readonly name = 'RefusedLinesError'
}

const unwritable = (error: unknown): RefusedLinesError =>
  new RefusedLinesError(`Cannot write the refused lines: ${error instanceof Error ? error.message : String(error)}`, {
    cause: error,
  })
