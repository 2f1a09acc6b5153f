import type { Client } from 'pg'
import type { TestDatabase } from './database'
import type { SessionName } from './interleaving'
import { endOrWait, openSession, type Outcome, type Session, type Statement } from './sessions'

export const SESSIONS: readonly SessionName[] = ['P', 'Q', 'R']

/** The sessions of an interleaving, and one that observes them. */
export interface Player {
  readonly observer: Client
  readonly sessions: Readonly<Record<SessionName, Session>>
}

/** One step of one session. */
export interface Turn {
  readonly session: SessionName
  /** undefined: looks again at the statement that the session sent last. */
  readonly sql: string | undefined
  /** Awaited before the statement is sent. */
  readonly first?: () => Promise<unknown>
  /** How long the session may wait before it is said to wait. @default 0 */
  readonly patienceMilliseconds?: number
  /** The line of the transcript. */
  readonly line: (outcome: Outcome | 'waits') => string
}

/**
 * Call once in a file; the sessions are opened before the first play.
 *
 * @param deadlocks milliseconds; of two sessions in a deadlock the one with the shorter time is ended
 */
export function usePlayer(
  db: Pick<TestDatabase, 'client'>,
  deadlocks: Readonly<Record<SessionName, number>> = { P: 1_000, Q: 10, R: 300 },
): () => Promise<Player> {
  let opened: Promise<Player> | undefined
  const session = async (name: SessionName): Promise<Session> => await openSession(await db.client(), deadlocks[name])
  const open = async (): Promise<Player> => ({
    observer: await db.client(),
    sessions: { P: await session('P'), Q: await session('Q'), R: await session('R') },
  })
  return async () => await (opened ??= open())
}

/**
 * Plays the turns one after another. A session that waits where it was not expected to gets its next statement all the
 * same: that one is queued behind, as a client would do it.
 *
 * @returns the transcript, and the statements that still waited when they were last looked at
 */
export async function playTurns(
  { observer, sessions }: Player,
  turns: readonly Turn[],
): Promise<{ readonly transcript: string[]; readonly waiting: ReadonlyMap<SessionName, Statement> }> {
  const sent = new Map<SessionName, Statement>()
  const waiting = new Map<SessionName, Statement>()
  const transcript: string[] = []
  for (const { session: name, sql, first, patienceMilliseconds, line } of turns) {
    const session = sessions[name]
    await first?.()
    if (sql !== undefined) sent.set(name, session.start(sql))
    const statement = sent.get(name)
    if (!statement) throw new TypeError(`${name} has sent nothing.`)
    const outcome = await endOrWait(observer, { session, statement }, patienceMilliseconds)
    if (outcome === 'waits') waiting.set(name, statement)
    else waiting.delete(name)
    transcript.push(line(outcome))
  }
  return { transcript, waiting }
}

/** Ends the transaction of every session. */
export async function endAll({ sessions }: Player, how: 'COMMIT' | 'ROLLBACK'): Promise<void> {
  await Promise.all(SESSIONS.map(async (name) => await sessions[name].run(how)))
}
