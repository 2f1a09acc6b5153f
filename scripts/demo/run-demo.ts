import { constants } from 'node:os'
import { SchemaDriftError } from '../../src'
import { describeError, outliveReaders } from '../../src/cli/terminal'
import { serverError } from '../../src/sql/sqlstate'
import { type DemoServer, openServer } from './server'

/**
 * Runs a demo on a server that is released however it ends, and ends the process. The first Ctrl-C aborts `signal`, so
 * that the work can finish in order; the second ends the process.
 */
export async function runDemo(work: (server: DemoServer, signal: AbortSignal) => Promise<number>): Promise<void> {
  outliveReaders(process)
  const interruption = new AbortController()
  const { signal } = interruption
  process.on('SIGINT', () => {
    if (signal.aborted) process.exit(128 + constants.signals.SIGINT)
    interruption.abort()
  })
  let server: DemoServer | undefined
  let code = 1
  try {
    server = await openServer()
    signal.throwIfAborted()
    console.log(server.origin)
    code = await work(server, signal)
  } catch (error) {
    // Ctrl-C ends the compiler of ormconfig.ts too, and its error may come before the signal is heard of here: signals
    // are heard between two turns, and the first of these ends before that.
    for (let turn = 0; turn < 2; turn += 1) await new Promise((resolve) => setImmediate(resolve))
    console.error(signal.aborted ? 'Stopped.' : describeError(error) + hint(error, server))
  }
  await server?.stop()
  if (signal.aborted) endBySignal()
  process.exit(code)
}

function hint(error: unknown, server: DemoServer | undefined): string {
  if (serverError(error)?.code === '42P01') return '\nNothing is stored yet: run npm start.'
  // The demo's data are not worth a migration.
  const stale = error instanceof SchemaDriftError && server?.embedded === true
  return stale ? '\nIf an older version of this repository made it, remove the data folder above and start again.' : ''
}

/** So that whoever started us, npm above all, sees Ctrl-C and not a failure to explain. */
function endBySignal(): void {
  process.removeAllListeners('SIGINT')
  process.kill(process.pid, 'SIGINT')
}
