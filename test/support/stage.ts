import type { Client } from 'pg'
import { guardOf } from '../../src/triggers/guard'
import { literal, quote } from '../../src/sql/identifier'
import type { TestDatabase } from './database'
import { createGuardedTable, putRows, rowsOf, textTable, violations } from './guarded-table'
import type { TextTable } from '../../src/sql/text-table'
import type { Expected, Interleaving, PerLevel, SessionName, Step } from './interleaving'
import { endAll, type Player, playTurns, SESSIONS, usePlayer } from './player'
import { type Level, LEVELS, type Outcome } from './sessions'

/** The table that interleavings work on. */
export const page = textTable({ scope: ['tenant'] })

/** The same, where a softly deleted row frees its text. */
export const softPage = { ...page, deleted: 'deletedAt' }

/** A setting in which interleavings run: the guard, perhaps changed, and what else stands on the table. */
export interface Setting {
  /** Name of the schema. */
  readonly name: string
  /** @default page */
  readonly table?: TextTable
  /** @default the guard as it is */
  readonly guard?: readonly string[]
  /** Statements after the table is made, for instance a user's own triggers. */
  readonly and?: readonly string[]
}

/** One level for all sessions, or one each. */
export type Levels = Level | Readonly<Record<SessionName, Level>>

export interface Played {
  /** The steps with what they gave. */
  readonly transcript: readonly string[]
  readonly rows: string
  readonly violations: readonly string[]
}

export interface Stage {
  /** Plays the steps one after another; what a waiting session was to do next waits for its end. */
  play(interleaving: Interleaving, levels: Levels, setting?: Setting): Promise<Played>
}

/** How long a session may wait before it is said to wait. */
const PATIENCE_MILLISECONDS = { runs: 0, stops: 0, goes: 0, ends: 200, meets: 5_000 } as const

/** The table `page` with its guard. */
export const PLAIN: Setting = { name: 'plain' }

/**
 * Barriers for `stops`: triggers that sort before and after the guard's. A session told to stop waits for the advisory
 * lock that the observer holds.
 */
const BARRIERS = [
  `CREATE FUNCTION barrier() RETURNS trigger LANGUAGE plpgsql AS $$
   BEGIN
     IF current_setting('barrier.site', true) = TG_ARGV[0] THEN
       PERFORM set_config('barrier.site', '', false);
       PERFORM pg_advisory_lock_shared(current_setting('barrier.lock')::bigint);
       PERFORM pg_advisory_unlock_shared(current_setting('barrier.lock')::bigint);
     END IF;
     RETURN coalesce(NEW, OLD);
   END $$`,
  ...(['a_before', 'z_placed'] as const).map(
    (name) =>
      `CREATE TRIGGER ${name} BEFORE INSERT OR UPDATE OR DELETE ON page FOR EACH ROW EXECUTE FUNCTION barrier(${literal(name.slice(2))})`,
  ),
  ...(['a_written', 'z_settled'] as const).map(
    (name) =>
      `CREATE TRIGGER ${name} AFTER INSERT OR UPDATE OR DELETE ON page FOR EACH ROW EXECUTE FUNCTION barrier(${literal(name.slice(2))})`,
  ),
]

/** Call once in a file; the sessions are opened before the first play. */
export function useStage(db: TestDatabase): Stage {
  const open = usePlayer(db)
  const made = new Set<string>()
  return {
    play: async (interleaving, levels, setting = PLAIN) => {
      const player = await open()
      const { observer } = player
      const stops = interleaving.steps.some(({ kind }) => kind === 'stops')
      const name = stops ? `${setting.name} with barriers` : setting.name
      if (!made.has(name)) {
        await makeSetting(observer, { ...setting, name, and: [...(setting.and ?? []), ...(stops ? BARRIERS : [])] })
        made.add(name)
      }
      await observer.query(`set search_path to ${quote(name)}`)
      const { table = page } = setting
      await putRows(observer, table, interleaving.given)
      await prepare(player, name, levels)
      const transcript = await playSteps(player, interleaving.steps)
      // Whatever is still open is committed, so that a fault cannot hide in a rollback.
      await endAll(player, 'COMMIT')
      return { transcript, rows: await rowsOf(observer, table), violations: await violations(observer, table) }
    },
  }
}

async function makeSetting(
  observer: Client,
  { name, and = [], table = page, guard = guardOf(table).create }: Setting,
): Promise<void> {
  await observer.query(`create schema ${quote(name)}; set search_path to ${quote(name)}`)
  await createGuardedTable(observer, table, { guard })
  await observer.query('create table child (page_id integer not null references page (id) on delete cascade)')
  for (const statement of and) await observer.query(statement)
}

async function prepare({ sessions }: Player, schema: string, levels: Levels): Promise<void> {
  for (const [index, name] of SESSIONS.entries()) {
    const level = typeof levels === 'string' ? levels : levels[name]
    await sessions[name].client.query(
      `set search_path to ${quote(schema)}; set default_transaction_isolation to ${literal(level)}; set "barrier.lock" to ${index}; set "barrier.site" to ''`,
    )
  }
}

/** Sends the steps; `ends` and `goes` look at what was sent before. */
async function playSteps(player: Player, steps: readonly Step[]): Promise<string[]> {
  const { observer, sessions } = player
  const { transcript } = await playTurns(
    player,
    steps.map((step) => {
      const { session, kind, operation, site } = step
      const lock = SESSIONS.indexOf(session)
      const first = async (): Promise<void> => {
        if (kind === 'stops') {
          sessions[session].start(`set "barrier.site" to ${literal(site ?? '')}`)
          await observer.query(`select pg_advisory_lock(${lock})`)
        }
        if (kind === 'goes') await observer.query(`select pg_advisory_unlock(${lock})`)
      }
      const patienceMilliseconds = PATIENCE_MILLISECONDS[kind]
      return {
        session,
        sql: operation?.sql,
        first,
        patienceMilliseconds,
        line: (outcome) => line(step, shown(outcome)),
      }
    }),
  )
  await observer.query('select pg_advisory_unlock_all()')
  return transcript
}

const shown = (outcome: Outcome | 'waits'): Expected => {
  if (outcome === 'waits') return outcome
  if (!outcome.ok) return outcome.sqlstate
  return outcome.count ?? outcome.command
}

function line({ session, kind, operation, site }: Omit<Step, 'expected'>, outcome: Expected): string {
  const what = { runs: '', meets: '', stops: ` stopped (${site})`, goes: 'goes on', ends: 'ends' }[kind]
  return `${session}: ${operation?.name ?? ''}${what} → ${outcome}`
}

/** What `play` must give at this level. */
export function expectedPlay({ steps, rows }: Interleaving, level: Level): Played {
  const key = levelKey(level)
  return { transcript: steps.map((step) => line(step, step.expected[key])), rows: rows[key], violations: [] }
}

export function levelKey(level: Level): keyof PerLevel<unknown> {
  return (['rc', 'rr', 'ser'] as const)[LEVELS.indexOf(level)] ?? 'rc'
}
