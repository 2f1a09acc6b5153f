import { Column, CreateDateColumn, Entity, Index, PrimaryGeneratedColumn } from 'typeorm'
import { UniqueText, whereNotNull } from '../core'

/**
 * A token for which `once` ran its work, with the answer, in table `once_tokens`. Put it among the entities of your
 * DataSource. Only the transaction that will answer a token sees its row without `answeredAt`.
 */
@Entity({ name: 'once_tokens' })
@Index('once_token_expiry_index', whereNotNull('expiresAt'))
export class OnceToken {
  /** A bigint, which the driver returns as a string. */
  @PrimaryGeneratedColumn('identity', { type: 'bigint', name: 'id' })
  id!: string

  @UniqueText({
    name: 'token',
    indexName: 'once_token_unique_index',
    hidden: { hash: 'token_hash', number: 'token_hash_number', chained: 'token_hash_chained' },
  })
  token!: string

  /** SHA-256 of the request, 64 hex digits; null if no request was given. */
  @Column({ type: 'varchar', length: 64, name: 'request', nullable: true })
  request!: string | null

  /** Null if `work` returned null or nothing. Not jsonb, which sorts keys and refuses U+0000. */
  @Column({ type: 'json', name: 'answer', nullable: true })
  answer!: unknown

  @CreateDateColumn({ type: 'timestamptz', name: 'created_at' })
  createdAt!: Date

  @Column({ type: 'timestamptz', name: 'answered_at', nullable: true })
  answeredAt!: Date | null

  /** Null: never. */
  @Column({ type: 'timestamptz', name: 'expires_at', nullable: true })
  expiresAt!: Date | null
}
