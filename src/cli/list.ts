import { open } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import { ListError } from './lines'

/** A list of texts, opened. */
export interface List {
  readonly chunks: AsyncIterable<Uint8Array>
  /** What was read of it so far, 0 to 1; undefined where its length is not known. */
  fraction(): number | undefined
  /** Ends the reading, also while it waits for more. */
  close(): void
}

/**
 * @param name a file's, or `-` for standard input
 * @throws ListError if it cannot be opened
 */
export async function openList(name: string): Promise<List> {
  if (name === '-') return listOf(process.stdin, undefined)
  try {
    const file = await open(name)
    const stat = await file.stat()
    if (stat.isDirectory()) {
      await file.close()
      throw new ListError(`"${name}" is a folder. Name a file.`)
    }
    return listOf(file.createReadStream(), stat.isFile() ? stat.size : undefined)
  } catch (error) {
    if (error instanceof ListError) throw error
    const reason = error instanceof Error ? error.message : String(error)
    throw new ListError(`The list cannot be opened: ${reason}`, { cause: error })
  }
}

function listOf(stream: Readable & { readonly bytesRead?: number }, size: number | undefined): List {
  return {
    chunks: stream as AsyncIterable<Uint8Array>,
    fraction: () => (size ? Math.min(1, (stream.bytesRead ?? 0) / size) : undefined),
    close: () => {
      stream.destroy()
    },
  }
}
