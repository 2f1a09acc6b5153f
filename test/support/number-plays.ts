import type { NumberTable } from '../../src/sql/numbers'
import type { TestDatabase } from './database'
import type { SessionName } from './interleaving'
import { createNumberedTable, numbersOf } from './numbered-table'
import { endAll, type Player, playTurns, usePlayer } from './player'
import type { Level, Outcome } from './sessions'

/**
 * Steps of sessions P, Q and R in a forced order, one a line: `P insert 1` (a row of scope 1), `P delete 1/3`, `P move
 * 1/3 to 2`, `P soft 1/3`, `P restore 1/3`, any other SQL, and `P ends` for what waited.
 */
export interface NumberPlay {
  readonly name: string
  /** How many rows each scope has before. */
  readonly given: readonly number[]
  readonly steps: readonly string[]
}

/** Plays on a table that is made anew, and gives what each step gave, and the numbers afterwards. */
export interface NumberStage {
  play(
    play: NumberPlay,
    on: {
      readonly table: NumberTable
      readonly level: Level
      readonly triggers?: readonly string[]
      readonly prepare?: string
    },
  ): Promise<string>
}

/** Call once in a file. */
export function useNumberStage(db: Pick<TestDatabase, 'client'>): NumberStage {
  const open = usePlayer(db)
  return {
    play: async ({ given, steps }, { table, level, triggers, prepare }) => {
      const player = await open()
      const { observer, sessions } = player
      await createNumberedTable(observer, table, triggers ? { triggers } : {})
      if (prepare !== undefined) await observer.query(prepare)
      for (const [index, rows] of given.entries()) {
        await observer.query('insert into comment (tenant) select $1 from generate_series(1, $2)', [index + 1, rows])
      }
      for (const { client } of Object.values(sessions)) {
        await client.query(`set default_transaction_isolation to '${level}'`)
      }
      const transcript = await playSteps(player, steps)
      await endAll(player, 'COMMIT')
      return [...transcript, await numbersOf(observer, table)].join(' | ')
    },
  }
}

async function playSteps(player: Player, steps: readonly string[]): Promise<string[]> {
  const turns = steps.map((step) => {
    const what = step.slice(2)
    const ends = what === 'ends'
    return {
      session: step.slice(0, 1) as SessionName,
      sql: ends ? undefined : sqlOf(what),
      patienceMilliseconds: ends ? 1_500 : 0,
      line: (outcome: Outcome | 'waits') => [step, shown(outcome)].filter((part) => part !== '').join(': '),
    }
  })
  return (await playTurns(player, turns)).transcript
}

function sqlOf(what: string): string {
  const [verb = '', at = '', , to] = what.split(' ')
  const [scope = '', number] = at.split('/')
  const row = number === undefined ? `tenant = ${scope}` : `tenant = ${scope} and number = ${number}`
  switch (at === 'into' || at === 'from' ? 'sql' : verb) {
    case 'insert': {
      return `insert into comment (tenant) values (${scope}) returning number`
    }
    case 'delete': {
      return `delete from comment where ${row}`
    }
    case 'move': {
      return `update comment set tenant = ${to} where ${row} returning number`
    }
    case 'soft': {
      return `update comment set "deletedAt" = now() where ${row}`
    }
    case 'restore': {
      return `update comment set "deletedAt" = null where ${row}`
    }
    default: {
      return what
    }
  }
}

function shown(outcome: Outcome | 'waits'): string {
  if (outcome === 'waits') return outcome
  if (!outcome.ok) return outcome.sqlstate
  const numbers = outcome.rows.map((row) => String((row as { readonly number?: number }).number ?? ''))
  return numbers.join(',')
}
