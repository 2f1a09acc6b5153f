import { Column, CreateDateColumn, Entity, JoinTable, ManyToMany, ManyToOne, PrimaryGeneratedColumn } from 'typeorm'
import { UniqueText } from 'typeorm-unique-text'
import { UniqueName } from 'typeorm-unique-text/names'
import { collapseWhitespace, compose, lowerCase, normalizer, Refusal, url } from 'typeorm-unique-text/normalizers'
import { NumberWithin } from 'typeorm-unique-text/numbers'

/** A handle is a part of a path, so it is short and has no characters that a path would encode. */
const handle = normalizer('handle', 1, (text) => {
  const lower = text.toLowerCase()
  if (!/^[a-z][a-z0-9-]{1,38}$/.test(lower)) throw new Refusal('it is not 2 to 39 letters, digits and hyphens')
  if (['health', 'metrics', 'tenants'].includes(lower)) throw new Refusal('it is reserved')
  return lower
})

/** A customer. After a rename, the former handle redirects to the new one, and no other tenant can take it. */
@Entity()
export class Tenant {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) readonly id!: number
  @UniqueName({ namespace: 'tenant', normalize: handle, former: 'redirect' }) handle!: string
}

/** A label in one tenant. */
@Entity()
export class Tag {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) readonly id!: number
  @ManyToOne(() => Tenant, { nullable: false, onDelete: 'CASCADE' }) tenant!: Tenant
  @UniqueText({ scope: ['tenant'], normalize: compose(collapseWhitespace(), lowerCase()) }) label!: string
}

/** A page that a tenant keeps. Each tenant has a URL once. */
@Entity()
export class Bookmark {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) readonly id!: number
  @ManyToOne(() => Tenant, { nullable: false, onDelete: 'CASCADE' }) tenant!: Tenant
  @UniqueText({ scope: ['tenant'], normalize: url() }) url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
  @ManyToMany(() => Tag) @JoinTable() tags!: Tag[]
  @CreateDateColumn({ type: 'timestamptz' }) readonly createdAt!: Date
}

/** An invoice to a tenant. The numbers of a tenant are 1, 2, 3, without gaps. */
@Entity()
export class Invoice {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) readonly id!: number
  @ManyToOne(() => Tenant, { nullable: false }) tenant!: Tenant
  @NumberWithin({ scope: ['tenant'] }) readonly number!: number
  @Column({ type: 'integer' }) cents!: number
}
