/** A terminal, or anything else that text can be written to. */
export type Output = NodeJS.WritableStream & { readonly isTTY?: boolean; readonly columns?: number }

/** Where a command writes. */
export interface Streams {
  /** Results. */
  readonly stdout: Output
  /** Progress and errors. */
  readonly stderr: Output
}

/** That the reader has gone (`… | head`) is no reason to stop the work, and none for a stack trace. */
export function outliveReaders({ stdout, stderr }: Streams): void {
  for (const stream of [stdout, stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error
    })
  }
}
