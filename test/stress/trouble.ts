import { setTimeout as sleep } from 'node:timers/promises'
import { Client } from 'pg'
import { quote } from '../../src/sql/identifier'
import type { Journal } from './journal'
import type { Random } from './random'
import { isScoped, keyColumns, type Subject } from './subject'
import {
  changeRelease,
  migrateInPieces,
  renameForAWhile,
  restoreColumns,
  restoreData,
  restoreReleases,
  type Upheaval,
} from './upheaval'

/** What happens to a table besides being written to. */
export const TROUBLES = [
  'triggers',
  'derived',
  'kills',
  'ddl',
  'renames',
  'releases',
  'migrations',
  'restores',
] as const

export type Trouble = (typeof TROUBLES)[number]

const PAUSE_MILLISECONDS = 400
/** Name of the connections of those who write; the checker's and this one's are left alone. */
export const WRITERS = 'unique-text-stress'

type MakeTrigger = (name: string, when: string, body: string) => string[]

const makerOf =
  ({ relation }: Subject, number: number): MakeTrigger =>
  (name, when, body) => {
    const runs = quote(`${name} ${number}`)
    return [
      `CREATE FUNCTION ${runs}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ${body} END $$`,
      `CREATE TRIGGER ${quote(name)} ${when} ON ${relation} FOR EACH ROW EXECUTE FUNCTION ${runs}()`,
    ]
  }

/** Triggers of a user who knows nothing of the guard; the one that undoes updates undoes touch and promotion too. */
const userTriggers = ({ relation }: Subject, make: MakeTrigger): string[] => [
  ...make('a stamp', 'BEFORE INSERT OR UPDATE', `NEW.note := 'stamped'; RETURN NEW;`),
  ...make('z stamp', 'BEFORE INSERT OR UPDATE', `NEW.note := coalesce(NEW.note, 'stamped late'); RETURN NEW;`),
  ...make('z trim', 'BEFORE INSERT OR UPDATE', `NEW.text := btrim(NEW.text); RETURN NEW;`),
  ...make('zz undo', 'BEFORE UPDATE', `IF random() < 0.05 THEN RETURN OLD; END IF; RETURN NEW;`),
  ...make(
    'm retouch',
    'AFTER INSERT',
    `UPDATE ${relation} SET note = 'retouched' WHERE id = NEW.id AND note = 'upserted'; RETURN NULL;`,
  ),
]

/** They derive a scope, before the guard looks at it and after, and write to the chain that is being written. */
function derivingTriggers(subject: Subject, make: MakeTrigger): string[] {
  const { relation, table } = subject
  const hash = quote(table.hash)
  const now = (share: number): string => `random() < ${share} AND pg_trigger_depth() = 1`
  const derive = `IF random() < 0.05 THEN NEW.tenant := 3 - NEW.tenant; END IF; RETURN NEW;`
  const columns = keyColumns(subject)
  return [
    ...(isScoped(subject)
      ? ['a derive', 'z derive'].flatMap((name) => make(name, 'BEFORE INSERT OR UPDATE', derive))
      : []),
    ...make(
      'b nest',
      'BEFORE INSERT',
      `IF ${now(0.03)} THEN DELETE FROM ${relation} WHERE text = NEW.text;
       ELSIF ${now(0.03)} THEN
         INSERT INTO ${relation} (${columns}) VALUES (${columns.replaceAll(/\w+/g, 'NEW.$&')}) ON CONFLICT DO NOTHING;
       END IF;
       RETURN NEW;`,
    ),
    ...make(
      'm nest',
      'AFTER INSERT OR UPDATE',
      `IF ${now(0.05)} THEN
         DELETE FROM ${relation} WHERE id = (
           SELECT id FROM ${relation} WHERE ${hash} = NEW.${hash} AND id <> NEW.id LIMIT 1);
       END IF;
       RETURN NULL;`,
    ),
  ]
}

/** Statements that other people's migrations run; each waits a moment for its lock, and is given up then. */
function changes({ relation, table }: Subject, random: Random): string {
  const index = table.schema === undefined ? quote(table.index) : `${quote(table.schema)}.${quote(table.index)}`
  return random.pick([
    `ALTER TABLE ${relation} ADD COLUMN IF NOT EXISTS extra integer`,
    `ALTER TABLE ${relation} DROP COLUMN IF EXISTS extra`,
    `ALTER TABLE ${relation} ALTER COLUMN note SET DEFAULT 'by default'`,
    `ALTER TABLE ${relation} ALTER COLUMN note DROP DEFAULT`,
    `CREATE INDEX IF NOT EXISTS "of notes ${table.table}" ON ${relation} (note)`,
    `DROP INDEX IF EXISTS "of notes ${table.table}"`,
    `REINDEX INDEX ${index}`,
    `VACUUM ${relation}`,
    `ANALYZE ${relation}`,
    `CLUSTER ${relation} USING ${quote(table.index)}`,
  ])
}

/** Before the writers begin. */
export async function installTriggers(
  url: string,
  subjects: readonly Subject[],
  troubles: readonly Trouble[],
): Promise<void> {
  const made = subjects.flatMap((subject, number) => [
    ...(troubles.includes('triggers') ? userTriggers(subject, makerOf(subject, number)) : []),
    ...(troubles.includes('derived') ? derivingTriggers(subject, makerOf(subject, number)) : []),
  ])
  if (made.length === 0) return
  await onConnection(url, async (client) => {
    for (const sql of made) await client.query(sql)
  })
}

/** Terminates backends in the midst of what they do, and changes the tables under them, as long as the run lasts. */
export async function makeTrouble(
  url: string,
  troubles: readonly Trouble[],
  { subjects, journal, random }: { subjects: readonly Subject[]; journal: Journal; random: Random },
): Promise<void> {
  const kinds = troubles.filter((trouble) => trouble !== 'triggers' && trouble !== 'derived')
  if (kinds.length === 0) return
  await onConnection(url, async (client) => {
    await client.query(`SET statement_timeout = '30s'`)
    const upheaval: Upheaval = { url, client, journal, random }
    while (journal.running) {
      await client.query(`SET lock_timeout = '200ms'`)
      await makeOne(random.pick(kinds), random.pick(subjects), upheaval)
      await sleep(random.int(PAUSE_MILLISECONDS))
    }
    await client.query('SET lock_timeout = 0')
    // The doctor is to find what this release makes.
    if (kinds.includes('releases')) await restoreReleases(subjects, upheaval)
    if (kinds.includes('migrations')) await restoreColumns(upheaval)
  })
}

async function makeOne(kind: Trouble, subject: Subject, upheaval: Upheaval): Promise<void> {
  const { client, journal, random } = upheaval
  if (kind === 'kills') await killOne(client, journal)
  else if (kind === 'renames') await renameForAWhile(subject, upheaval)
  else if (kind === 'releases') await changeRelease(subject, upheaval)
  else if (kind === 'migrations') await migrateInPieces(upheaval)
  else if (kind === 'restores') await restoreData(subject, upheaval)
  else await change(client, changes(subject, random), journal)
}

async function killOne(client: Client, journal: Journal): Promise<void> {
  const { rowCount } = await client.query(
    `SELECT pg_terminate_backend(pid) FROM (
       SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND state <> 'idle' AND datname = current_database()
        ORDER BY random() LIMIT 1
     ) AS victim`,
    [WRITERS],
  )
  journal.add('backends terminated', rowCount ?? 0)
}

async function change(client: Client, sql: string, journal: Journal): Promise<void> {
  try {
    await client.query(sql)
    journal.add('changes of tables')
  } catch {
    // Others were writing: it comes again.
    journal.add('changes of tables given up')
  }
}

async function onConnection(url: string, work: (client: Client) => Promise<void>): Promise<void> {
  const client = new Client({ connectionString: url })
  await client.connect()
  try {
    await work(client)
  } finally {
    await client.end()
  }
}
