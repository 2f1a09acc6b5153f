import type { Client } from 'pg'
import { quote } from '../../src/sql/identifier'
import type { TestDatabase } from './database'
import type { Expected, PerLevel, SessionName } from './interleaving'
import { createHolder, createNames, FREE, holderTable, namesTable, nameViolations, RESERVE } from './names-table'
import { endAll, type Player, playTurns, SESSIONS, usePlayer } from './player'
import { type Level, LEVELS, type Outcome } from './sessions'
import { firstLetter } from './guarded-table'

const of = namesTable(firstLetter)
/** Texts with the same first letter have one hash. */
export const users = holderTable('users', of, {
  names: ['handle', 'nick'].map((column) => ({ column, namespace: 'handle', former: FREE })),
})
export const orgs = holderTable('orgs', of, { names: [{ column: 'handle', namespace: 'handle', former: RESERVE }] })

/** A session, what it sends, and what comes of it: a count of rows, a SQLSTATE, or `waits`. */
export type NameStep = readonly [SessionName, sql: string, expected: Expected | PerLevel<Expected>]

export interface NameInterleaving {
  readonly name: string
  /** Statements before the first step. @default users 1 and 2 hold a and b */
  readonly given?: string
  readonly steps: readonly NameStep[]
  /** The names in the end: `a=users1 b=orgs2?`, a former one with a question mark. */
  readonly names: string | PerLevel<string>
}

export interface PlayedNames {
  readonly transcript: readonly string[]
  readonly names: string
  readonly violations: readonly string[]
}

export interface NamesStage {
  play(interleaving: NameInterleaving, levels: Level | readonly Level[], setting?: NamesSetting): Promise<PlayedNames>
}

export interface NamesSetting {
  readonly name: string
  /** Statements that make the triggers of a holder's table, perhaps changed. */
  readonly triggers?: (table: typeof users) => readonly string[]
}

export const WHOLE: NamesSetting = { name: 'whole' }

const GIVEN = `insert into users (id, handle) values (1, 'a'), (2, 'b')`

/** Call once in a file. */
export function useNamesStage(db: TestDatabase): NamesStage {
  const open = usePlayer(db, { P: 1_000, Q: 1_000, R: 1_000 })
  const made = new Set<string>()
  return {
    play: async ({ given = GIVEN, steps }, levels, { name, triggers } = WHOLE) => {
      const player = await open()
      const { observer, sessions } = player
      if (!made.has(name)) {
        await observer.query(`create schema ${quote(name)}`)
        await observer.query(`set search_path to ${quote(name)}`)
        for (const statement of createNames(of)) await observer.query(statement)
        for (const one of [users, orgs]) {
          for (const statement of createHolder(one, triggers?.(one))) await observer.query(statement)
        }
        made.add(name)
      }
      await observer.query(
        `set search_path to ${quote(name)}; set session_replication_role = replica; truncate names, users, orgs;
         set session_replication_role = origin`,
      )
      await observer.query(given)
      for (const [index, one] of SESSIONS.entries()) {
        const level = typeof levels === 'string' ? levels : (levels[index] ?? LEVELS[0])
        await sessions[one].client.query(
          `set search_path to ${quote(name)}; set default_transaction_isolation to '${level.toLowerCase()}'`,
        )
      }
      const transcript = await playSteps(player, steps)
      return { transcript, names: await standing(observer), violations: await nameViolations(observer, [users, orgs]) }
    },
  }
}

/** `await` as the SQL of a step is the end of what the session waits in. */
async function playSteps(player: Player, steps: readonly NameStep[]): Promise<string[]> {
  const { transcript, waiting } = await playTurns(
    player,
    steps.map(([session, sql]) => ({
      session,
      sql: sql === 'await' ? undefined : sql,
      line: (outcome) => `${session}: ${sql}: ${shown(outcome)}`,
    })),
  )
  // A session that waits unexpectedly may wait for a transaction that no step ends.
  const idle = SESSIONS.filter((name) => !waiting.has(name))
  await Promise.all(idle.map(async (name) => await player.sessions[name].run('ROLLBACK')))
  for (const [name, { outcome }] of waiting) transcript.push(`${name} waited at the end: ${shown(await outcome)}`)
  await endAll(player, 'ROLLBACK')
  return transcript
}

function shown(outcome: Outcome | 'waits'): string {
  if (outcome === 'waits') return 'waits'
  if (!outcome.ok) return outcome.sqlstate
  return String(outcome.count ?? 'ok')
}

/** What an interleaving was to give at a level, in the words of `playSteps`. */
export const expectedNames = ({ steps, names }: NameInterleaving, level: Level): PlayedNames => ({
  transcript: steps.map(([name, sql, expected]) => `${name}: ${sql}: ${String(at(expected, level))}`),
  names: at(names, level),
  violations: [],
})

const at = <T extends Expected>(value: T | PerLevel<T>, level: Level): T =>
  typeof value === 'object'
    ? value[level === 'READ COMMITTED' ? 'rc' : level === 'REPEATABLE READ' ? 'rr' : 'ser']
    : value

async function standing(client: Client): Promise<string> {
  const { rows } = await client.query<{ names: string }>(
    `SELECT coalesce(string_agg(text || '=' || holder || (holder_key ->> 0) || CASE state WHEN 'held' THEN '' ELSE '?' END,
       ' ' ORDER BY text COLLATE "C"), '') AS names FROM names`,
  )
  return rows[0]?.names ?? ''
}
