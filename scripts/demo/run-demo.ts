import { constants } from 'node:os'
import { SchemaDriftError } from '../../src'
import { outliveReaders } from '../../src/cli/terminal'
import { describeError } from '../../src/cli/error-messages'
import { type ExampleServer, openServer } from './server'

/**
 * Runs an example on a server that is stopped however it ends, and ends the process.
 *
 * The first Ctrl-C aborts `signal`. It also reaches an embedded server, since that belongs to the same terminal: what
 * fails after that is no error.
 */
export async function runExample(work: (server: ExampleServer, signal: AbortSignal) => Promise<number>): Promise<void> {
  outliveReaders(process)
  const interruption = new AbortController()
  const { signal } = interruption
  process.on('SIGINT', () => {
    if (signal.aborted) process.exit(128 + constants.signals.SIGINT)
    interruption.abort()
  })
  let server: ExampleServer | undefined
  let code = 1
  try {
    server = await openServer()
    signal.throwIfAborted()
    console.log(server.origin)
    code = await work(server, signal)
  } catch (error) {
    if (!signal.aborted) console.error(describeError(error) + hint(error, server))
  }
  await server?.stop()
  if (signal.aborted) endBySignal()
  process.exit(code)
}

/** The data of an example are not worth a migration. */
function hint(error: unknown, server: ExampleServer | undefined): string {
  const stale = error instanceof SchemaDriftError && server?.embedded === true
  return stale ? '\nIf an older version of this repository made it, remove the data folder above and start again.' : ''
}

/** So that whoever started us, npm above all, sees Ctrl-C and no failure to explain. */
function endBySignal(): void {
  process.removeAllListeners('SIGINT')
  process.kill(process.pid, 'SIGINT')
}
