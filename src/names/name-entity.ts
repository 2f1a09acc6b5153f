import { Column, Entity, getMetadataArgsStorage, Index, PrimaryGeneratedColumn } from 'typeorm'
import { UniqueText } from '../core'
import { attachNamesEntity } from './unique-name'

/**
 * The entity of a name that a row holds or held, in table `names`. Add it to the entities of your DataSource, and query
 * it like any other. Triggers on the holders' tables write it. You can delete former names. To change a held name,
 * change its holder.
 */
@Entity({ name: 'names' })
@Index('names_holder_index', ['key', 'holder', 'property'])
@Index('names_until_index', ['until'], { where: '"until" IS NOT NULL' })
export class Name {
  /** A bigint, which the driver returns as a string. */
  @PrimaryGeneratedColumn('identity', { type: 'bigint' })
  id!: string

  /** The namespace of `@UniqueName`. */
  @Column({ type: 'varchar', length: 63 })
  namespace!: string

  /** The name itself, normalized. */
  @UniqueText({
    scope: ['namespace'],
    indexName: 'names_unique_index',
    hidden: { hash: 'text_hash', number: 'text_hash_number', chained: 'text_hash_chained' },
  })
  text!: string

  /**
   * The holder's table: its OID, which the server shows as its name. PostgreSQL compares it with another OID, so a
   * condition is ``holder: Raw((column) => `${column} = '"user"'::regclass`)``.
   */
  @Column({ type: 'regclass' as 'text' })
  holder!: string

  /** The column of that table which holds the name. */
  @Column({ name: 'holder_column', type: 'varchar', length: 63 })
  property!: string

  /** Primary key of the holder. */
  @Column({ name: 'holder_key', type: 'jsonb' })
  key!: (string | number | boolean | null)[]

  /** When the holder took the name, or gave it up. */
  @Column({ type: 'timestamptz', default: () => 'now()' })
  since!: Date

  /** `held`: the row has the name now. Otherwise the row had it, and nobody else can take it before `until`. */
  @Column({ type: 'varchar', length: 8, default: 'held' })
  state!: 'held' | 'reserved' | 'redirect'

  /** The end of a reservation or of a redirect, or null if there is no end. */
  @Column({ type: 'timestamptz', nullable: true })
  until!: Date | null
}

getMetadataArgsStorage().indices.push({
  target: Name,
  columns: function columns(this: object): string[] {
    return attachNamesEntity(this)
  },
})
