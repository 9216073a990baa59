# Makes the simulator of policy.md tell what it learns and decides, one line each, so that
# policy_sim_test.c can do the same: F worker queued seconds, E worker seconds,
# D block-size prompt seconds-per-token random pick n, then for each worker up, slots, queued,
# requests, cached, slowness, lifetime, score. The pick is a function of the random number printed.
/^\/\/ returns worker or -1 (hold)/i\
static int told(Router&r,Req*q,vector<double>&s,vector<char>&ok,vector<int>&H){\
  double least=1e300;int near=0,pick=-1;u64 random=rg.n();\
  for(int i=0;i<N;i++)if(ok[i])least=min(least,s[i]);\
  for(int i=0;i<N;i++)near+=ok[i]&&s[i]<=least*(1+C.tie);\
  int nth=(int)((random>>11)*0x1p-53*near);\
  for(int i=0;i<N;i++)if(ok[i]&&s[i]<=least*(1+C.tie)&&nth--==0)pick=i;\
  fprintf(stderr,"D %d %d %.17g %llu %d %d",BS,q->isl,r.c>0?r.c:1e-4,(unsigned long long)random,pick,N);\
  for(int i=0;i<N;i++)fprintf(stderr," %d %ld %ld %d %d %.17g %.17g %.17g",ok[i],metaS,r.w[i].P,r.w[i].B,H[i],Rel(r,i),Ew(r,i),s[i]);\
  fprintf(stderr,"\\n");return pick;}
s/return fin(C\.tie);}/return told(r,q,s,ok,H);}/
s/if(!q->clean)return; /&fprintf(stderr,"F %d %.17g %.17g\\n",q->w,x,y);/
s/double e=now_-q->t1;/&fprintf(stderr,"E %d %.17g\\n",q->w,e);/
