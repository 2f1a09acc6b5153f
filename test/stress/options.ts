import { parseArgs } from 'node:util'
import { type Trouble, TROUBLES } from './trouble'
import { MUTATION_NAMES, requireMutation } from './mutations'
import { type Level, LEVELS } from '../support/sessions'

/** What the command line said. */
export interface CommandLine {
  readonly seconds: number
  readonly clients: number
  readonly isolation: Level | 'mixed'
  readonly texts: number
  readonly seed: number | undefined
  /** Each gets a run of its own; empty for the guard as it is. */
  readonly mutations: readonly string[]
  readonly troubles: readonly Trouble[]
  /** File for the counts. */
  readonly json: string | undefined
}

export const USAGE = `Usage: npm run stress -- [options]

  --minutes N         of the whole run (default 2; with --mutation 0.5, the most it may take to find the fault)
  --clients N         that write at the same time (default 20)
  --isolation LEVEL   mixed, or one of: ${LEVELS.map((level) => `"${level.toLowerCase()}"`).join(', ')} (default mixed)
  --texts N           in play, of four hashes (default 30)
  --seed N            of what the clients choose (default random, printed)
  --with TROUBLES     besides the writers, separated by commas: ${TROUBLES.join(', ')}
  --mutation NAME     take this part out of the guard, or of what calls share: success is to find a violation; "all" for every one in turn
  --json FILE         write the counts there too

STRESS_DATABASE_URL or TEST_DATABASE_URL names a server on which a database may be made, by a superuser; without
either an embedded one is started.`

const MUTATION_MINUTES = 0.5

/** @throws Error with what is wrong with an option */
export function parseCommandLine(args: readonly string[]): CommandLine {
  const { values } = parseArgs({
    args: [...args],
    options: {
      minutes: { type: 'string' },
      clients: { type: 'string', default: '20' },
      isolation: { type: 'string', default: 'mixed' },
      texts: { type: 'string', default: '30' },
      seed: { type: 'string' },
      with: { type: 'string', default: '' },
      mutation: { type: 'string' },
      json: { type: 'string' },
    },
  })
  const { mutation } = values
  const minutes = values.minutes === undefined ? undefined : positive('minutes', values.minutes)
  return {
    seconds: 60 * (minutes ?? (mutation === undefined ? 2 : MUTATION_MINUTES)),
    clients: whole('clients', values.clients),
    isolation: levelOf(values.isolation),
    texts: whole('texts', values.texts),
    seed: values.seed === undefined ? undefined : Number(values.seed) >>> 0,
    mutations: mutation === undefined ? [] : mutation === 'all' ? MUTATION_NAMES : [requireMutation(mutation)],
    troubles: values.with.split(',').filter(Boolean).map(troubleOf),
    json: values.json,
  }
}

function troubleOf(name: string): Trouble {
  const trouble = TROUBLES.find((one) => one === name)
  if (!trouble) throw new Error(`--with takes some of ${TROUBLES.join(',')}.`)
  return trouble
}

function levelOf(name: string): Level | 'mixed' {
  if (name === 'mixed') return name
  const level = LEVELS.find((one) => one.toLowerCase() === name.toLowerCase().replaceAll('-', ' '))
  if (!level) throw new Error(`--isolation takes mixed or one of ${LEVELS.join(', ').toLowerCase()}.`)
  return level
}

function positive(name: string, value: string): number {
  const number = Number(value)
  if (!(number > 0) || !Number.isFinite(number)) throw new Error(`--${name} takes a number above 0.`)
  return number
}

function whole(name: string, value: string): number {
  const number = positive(name, value)
  if (!Number.isInteger(number)) throw new Error(`--${name} takes a whole number.`)
  return number
}
